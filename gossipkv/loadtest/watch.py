"""The cluster under load, watched over the wire: changes of members' states, and switches of versions.

A thread for each node asks twice a second, so a silent node delays no other.  The targets are watched, and every member
that they report: gossip takes many seconds to suspect a node, while a broken connection shows its death at once.
Members are taken from the first node that answers; each node is asked for its own versions.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, final

from gossipkv.client.blocking import Client
from gossipkv.client.credentials import PLAIN
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.address import Address
    from gossipkv.client.credentials import Credentials
    from gossipkv.wire.rpc import Value

PERIOD_S: Final = 0.5  # A death is then reported within a second.
TIMEOUT_MS: Final = 900
DATASET: Final = "dataset"


@final
class WatchView:
    """The state of the last answers, and the changes in each: without threads and clock."""

    def __init__(self, database: str, tell: Callable[[str, str, str], None], *, targets: Sequence[Address]) -> None:
        """Create it; targets have the first numbers, and further members follow them."""
        self._database = database
        self._tell = tell
        self._targets = len(targets)
        self._watched = [*map(str, targets)]  # The index is the number of the node.
        self._members: dict[str, str] = {}
        self._versions: dict[int, str | None] = {}
        self._names: dict[int, str] = {}
        self._addresses: dict[str, str] = {}  # The addresses of live members only.
        self._answers: dict[int, bool] = {}

    def name(self, number: int, fallback: str) -> str:
        return self._names.get(number, fallback)

    def hear_name(self, number: int, name: str) -> None:
        self._names[number] = name

    def hear_members(self, number: int, members: Sequence[Mapping[str, Value]]) -> None:
        """Note a node's members; only the first answering node is believed."""
        if number != min((at for at, answers in self._answers.items() if answers), default=number):
            return
        now = {str(member.get("node")): str(member.get("state")) for member in members}
        self._addresses = {str(member["node"]): str(member["address"]) for member in members if _lives(member)}
        for node in sorted(now.keys() | self._members.keys()):
            before, after = self._members.get(node), now.get(node)
            if before != after and self._members:
                self._tell("member", node, f"{before or 'unknown'} -> {after or 'forgotten'}")
        self._members = now

    def take_unwatched(self) -> list[tuple[int, str]]:
        """Return unwatched live members, as number and address, each once; none before all targets spoke.

        A target may have a second address: its name shows that it is watched already.
        """
        if len(self._answers.keys() & range(self._targets)) < self._targets:
            return []
        watched_names = {*self._names.values()}
        found = []
        for node, address in self._addresses.items():
            if node not in watched_names and address not in self._watched:
                found.append((len(self._watched), address))
                self._names[len(self._watched)] = node
                self._watched.append(address)
        return found

    def hear_databases(self, number: int, fallback: str, databases: Sequence[Mapping[str, Value]]) -> None:
        for database in databases:
            if database.get("name") == self._database and database.get("kind", DATASET) == DATASET:
                reported = database.get("version")
                version = reported if isinstance(reported, str) else None
                before = self._versions.get(number)
                if number in self._versions and before != version:
                    who = f"{self.name(number, fallback)} {self._database}"
                    self._tell("version", who, f"{before or 'none'} -> {version or 'none'}")
                self._versions[number] = version

    def hear_silence(self, number: int, fallback: str, why: str) -> None:
        """Note that a node does not answer; a member that never did may be unreachable from here."""
        if number >= self._targets and number not in self._answers:
            return
        if self._answers.get(number, True):
            self._tell("silent", self.name(number, fallback), why)
        self._answers[number] = False

    def hear_answer(self, number: int, fallback: str) -> None:
        if not self._answers.get(number, True):
            self._tell("answers", self.name(number, fallback), "again")
        self._answers[number] = True


@final
class RunWatch:
    """The watching threads; they call `tell` one at a time, with what, who, detail."""

    def __init__(
        self,
        addresses: Sequence[Address],
        database: str,
        tell: Callable[[str, str, str], None],
        credentials: Credentials = PLAIN,
    ) -> None:
        self._credentials = credentials
        self._view = WatchView(database, tell, targets=addresses)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._targets = addresses

    def __enter__(self) -> Self:
        with self._lock:
            for number, address in enumerate(self._targets):
                self._begin(number, str(address))
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:  # No thread starts after this.
            self._ended.set()
        for thread in self._threads:
            thread.join()

    def _begin(self, number: int, address: str) -> None:
        if not self._ended.is_set():
            thread = threading.Thread(target=self._ask, args=(number, address), name=f"watch {address}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _ask(self, number: int, address: str) -> None:
        name = None
        while not self._ended.is_set():
            try:
                # A client that stays would follow the cluster, and go on at another node.
                with Client([address], timeout_ms=TIMEOUT_MS, credentials=self._credentials) as client:
                    if name is None:
                        name = str(client.info().get("node", address))
                    members, databases = client.members(), client.databases()
            except GossipKVError as error:
                with self._lock:
                    self._view.hear_silence(number, address, error.code)
            else:
                with self._lock:
                    self._view.hear_name(number, name)
                    self._view.hear_answer(number, address)
                    self._view.hear_members(number, members)
                    self._view.hear_databases(number, address, databases)
            with self._lock:
                for unwatched in self._view.take_unwatched():
                    self._begin(*unwatched)
            self._ended.wait(PERIOD_S)


def live_members(address: Address, timeout_ms: int, credentials: Credentials = PLAIN) -> list[str]:
    """Return the addresses of live members, as a node knows them.

    Raises:
        GossipKVError: it does not answer.
    """
    with Client([address], timeout_ms=timeout_ms, credentials=credentials) as client:
        return [str(member["address"]) for member in client.members() if _lives(member)]


def _lives(member: Mapping[str, Value]) -> bool:
    return member.get("state") in {"alive", "silent"}


def info_of(address: Address, credentials: Credentials = PLAIN) -> dict[str, Value]:
    """Return a node's report about itself; empty if it does not answer."""
    with suppress(GossipKVError), Client([address], timeout_ms=TIMEOUT_MS, credentials=credentials) as client:
        return client.info()
    return {}
