"""Connections to members, each kept while it is asked again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError, Unavailable
from gossipkv.http.page.defects import contained

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from gossipkv.http.answers import Asker
    from gossipkv.wire.rpc import Value

    Reach = Callable[[str], AbstractAsyncContextManager[Asker]]

KEPT_S: Final = 10.0  # Since it was last asked: some refreshes of a page.


@final
class _Link:
    """One connection, which a task of its own holds."""

    def __init__(self) -> None:
        self.settled = trio.Event()  # There is an asker, or an error.
        self.asker: Asker | None = None
        self.error: GossipKVError | None = None
        self.kept = trio.CancelScope()  # Until a while after it was last asked.


@final
class Links:
    """Connections by address; `reach` makes one, and raises a `GossipKVError` where it cannot."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._links: dict[str, _Link] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold connections, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def call(self, address: str, method: str, *params: Value, timeout_ms: int) -> Value:
        """Return the result of a method of the node at an address, in the time allowed, connecting included.

        Raises:
            GossipKVError: it answered with an error, or not at all.
        """
        with trio.move_on_after(timeout_ms / 1000):
            link = self._links.get(address)
            if link is None:
                assert self._nursery is not None, "connections are asked for before `run`"
                link = self._links[address] = _Link()
                self._nursery.start_soon(self._hold, address, link)
            link.kept.deadline = trio.current_time() + KEPT_S
            await link.settled.wait()
            if link.asker is None:
                raise link.error or Unavailable(f"no connection to {address}")
            return await link.asker.call(method, *params, timeout_ms=timeout_ms)
        raise Unavailable(f"no answer within {timeout_ms / 1000:g} s")

    async def _hold(self, address: str, link: _Link) -> None:
        """Connect, and stay connected while somebody asks."""
        try:
            with contained(f"connection to {address}"):
                async with self._reach(address) as link.asker:
                    link.settled.set()
                    with link.kept:
                        await trio.sleep_forever()
                    del self._links[address]  # Before anything else runs: whoever asks now makes another.
        except GossipKVError as error:
            link.error = error
        finally:
            link.asker = None
            link.settled.set()
            if self._links.get(address) is link:
                del self._links[address]
