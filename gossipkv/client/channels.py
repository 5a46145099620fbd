"""The channels of one client: a thread takes one for a request, and gives it back.

There is no lock: free places are a list, whose `append` and `pop` are atomic, and so a signal handler that asks for
something amid a request takes another channel.  The last place given back is the first to be taken, so there are only
as many connections as threads ask at once.  If all are taken, threads wait in line, and a place that is given back goes
to the first of them.
"""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Final, final

from gossipkv.client import forks
from gossipkv.client.route import ClientClosed
from gossipkv.errors import TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address
    from gossipkv.client.channel import Channel

MAX_CHANNELS: Final = 64


@final
class ChannelPlace:
    """One place among the channels, with its channel once there is one.

    A place that gets lost, by an exception that comes between two lines of Python, returns without its channel.
    """

    __slots__ = ("_channels", "channel")

    def __init__(self, channels: weakref.ref[Channels]) -> None:
        self._channels = channels
        self.channel: Channel | None = None

    def __del__(self) -> None:
        if not hasattr(self, "channel"):  # An exception came before its lines were done.
            return
        channels = self._channels()
        if channels is not None:
            place = ChannelPlace(self._channels)
            place.channel = self.channel
            channels.drop(place)
        elif self.channel is not None:  # The client is garbage.
            self.channel.drop()


@final
class Channels:
    """At most MAX_CHANNELS channels, which `make` makes when they are needed."""

    __slots__ = ("__weakref__", "_free", "_is_closed", "_made", "_make", "_waiting")

    def __init__(self, make: Callable[[], Channel]) -> None:
        self._make = make
        self._made: list[Channel] = []
        self._free: list[ChannelPlace] = []
        self._waiting: deque[SimpleQueue[ChannelPlace | None]] = deque()
        self._is_closed = False
        self.renew()
        forks.heirs.add(self)

    @property
    def address(self) -> Address | None:
        """The node in use, or None while there is no connection."""
        return next(filter(None, (channel.dispatcher.address for channel in reversed([*self._made]))), None)

    def take(self, due: float) -> tuple[ChannelPlace, Channel]:
        """Return a channel, and the place to give back.

        Raises:
            TimedOut: all are in use until `due`.
            Unavailable: the client is closed.
        """
        if self._is_closed:
            raise ClientClosed
        try:
            place = self._wait(due) if self._waiting else self._free.pop()
        except IndexError:
            place = self._wait(due)
        channel = place.channel
        if channel is None:
            channel = place.channel = self._make()
            self._made.append(channel)
        return place, channel

    def give(self, place: ChannelPlace) -> None:
        """Take back a place whose channel is whole."""
        self._free.append(place)
        if self._is_closed:
            self._close_free()
        elif self._waiting:
            self._hand_over()

    def drop(self, place: ChannelPlace) -> None:
        """Take back a place whose channel may be amid anything."""
        channel, place.channel = place.channel, None
        if channel is not None:
            channel.drop()
            with suppress(ValueError):  # It was the parent's.
                self._made.remove(channel)
        self.give(place)

    def close(self) -> None:
        """End all channels; threads that use one get `Unavailable`."""
        self._is_closed = True
        self._close_free()
        for channel in [*self._made]:
            channel.cut()
        while self._waiting:
            with suppress(IndexError):
                self._waiting.popleft().put(None)

    def renew(self) -> None:
        """Begin anew, in a forked child, without the parent's connections and threads."""
        for channel in self._made:
            channel.drop()
        for place in self._free:
            place.channel = None
        self._made = []
        self._waiting.clear()
        self._free += [ChannelPlace(weakref.ref(self)) for _ in range(MAX_CHANNELS - len(self._free))]

    def _wait(self, due: float) -> ChannelPlace:
        box: SimpleQueue[ChannelPlace | None] = SimpleQueue()
        self._waiting.append(box)
        self._hand_over()  # A place may have come back meanwhile.
        place = None
        with suppress(Empty):
            place = box.get(timeout=0 if self._is_closed else max(0.0, due - monotonic()))
        if place is not None:
            return place
        if self._is_closed:
            raise ClientClosed
        with suppress(ValueError):
            self._waiting.remove(box)
        raise TimedOut(
            f"all {MAX_CHANNELS} connections of this client were in use until the deadline; nothing was sent"
        )

    def _hand_over(self) -> None:
        """Give free places to waiting threads, the first come first."""
        while self._waiting and self._free:
            try:
                place = self._free.pop()
            except IndexError:
                return
            try:
                self._waiting.popleft().put(place)
            except IndexError:
                self._free.append(place)

    def _close_free(self) -> None:
        for place in [*self._free]:
            channel, place.channel = place.channel, None
            if channel is not None:
                channel.close()
