"""The cluster, watched over the wire while it is under load: members whose state changed, versions that were switched.

Each node is asked once a second by a thread of its own, so one that is silent holds up no other.  Members are told as
the first node that answers sees them; each node is asked for its own versions.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, final

from gossipkv.client.blocking import Client
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from gossipkv.address import Address
    from gossipkv.wire.rpc import Value

PERIOD_S: Final = 1.0
TIMEOUT_MS: Final = 900  # Less than the period.


@final
class View:
    """What the last answers said, and what is new in each: no thread, no clock."""

    def __init__(self, database: str, tell: Callable[[str, str, str], None]) -> None:
        self._database = database
        self._tell = tell
        self._members: dict[str, str] = {}
        self._versions: dict[int, str | None] = {}
        self._names: dict[int, str] = {}
        self._answers: dict[int, bool] = {}

    def name(self, number: int, fallback: str) -> str:
        """What a node calls itself, if it ever said."""
        return self._names.get(number, fallback)

    def hear_name(self, number: int, name: str) -> None:
        """A node says what it is called."""
        self._names[number] = name

    def hear_members(self, number: int, members: Sequence[Mapping[str, Value]]) -> None:
        """A node says who is there; only the first of those that answer is believed."""
        if number != min((at for at, answers in self._answers.items() if answers), default=number):
            return
        now = {str(member.get("node")): str(member.get("state")) for member in members}
        for node in sorted(now.keys() | self._members.keys()):
            before, after = self._members.get(node), now.get(node)
            if before != after and self._members:
                self._tell("member", node, f"{before or 'unknown'} -> {after or 'forgotten'}")
        self._members = now

    def hear_databases(self, number: int, fallback: str, databases: Sequence[Mapping[str, Value]]) -> None:
        """A node says which version it has active."""
        for database in databases:
            if database.get("name") == self._database:
                told = database.get("version")
                version = told if isinstance(told, str) else None
                before = self._versions.get(number)
                if number in self._versions and before != version:
                    who = f"{self.name(number, fallback)} {self._database}"
                    self._tell("version", who, f"{before or 'none'} -> {version or 'none'}")
                self._versions[number] = version

    def hear_silence(self, number: int, fallback: str, why: str) -> None:
        """A node does not answer."""
        if self._answers.get(number, True):
            self._tell("silent", self.name(number, fallback), why)
        self._answers[number] = False

    def hear_answer(self, number: int, fallback: str) -> None:
        """A node answers."""
        if not self._answers.get(number, True):
            self._tell("answers", self.name(number, fallback), "again")
        self._answers[number] = True


@final
class Watch:
    """Threads that ask; `tell` is called by them, one at a time, with what, who, detail."""

    def __init__(self, addresses: Sequence[Address], database: str, tell: Callable[[str, str, str], None]) -> None:
        self._view = View(database, tell)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(number, address), name=f"watch {address}", daemon=True)
            for number, address in enumerate(addresses)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int, address: Address) -> None:
        """Ask one node again and again."""
        with Client([address], timeout_ms=TIMEOUT_MS) as client:
            name = None
            while not self._ended.is_set():
                try:
                    if name is None:
                        name = str(client.info().get("node", address))
                    members, databases = client.members(), client.databases()
                except GossipKVError as error:
                    with self._lock:
                        self._view.hear_silence(number, str(address), error.code)
                else:
                    with self._lock:
                        self._view.hear_name(number, name)
                        self._view.hear_answer(number, str(address))
                        self._view.hear_members(number, members)
                        self._view.hear_databases(number, str(address), databases)
                self._ended.wait(PERIOD_S)


def live_members(address: Address, timeout_ms: int) -> list[str]:
    """Addresses of the members that are alive, as a node knows them.

    Raises:
        GossipKVError: it does not answer.
    """
    with Client([address], timeout_ms=timeout_ms) as client:
        return [str(member["address"]) for member in client.members() if member.get("state") in {"alive", "silent"}]


def told_by(address: Address) -> dict[str, Value]:
    """What a node says of itself; nothing if it does not answer."""
    with suppress(GossipKVError), Client([address], timeout_ms=TIMEOUT_MS) as client:
        return client.info()
    return {}
