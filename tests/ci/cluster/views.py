"""What the nodes of a cluster say of each other: asked now, and read in their logs."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.client import blocking
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.launcher import Cluster

PATIENCE_S = 120.0  # Seconds do; but sixteen nodes may share two busy cores with others.
POLL_S = 0.2

# For nodes whose logs are read here; a name of their own keeps out whoever looks for another cluster at these ports.
NAME = f"test-{os.getpid()}"
LOGGED = {"log_format": "json", "cluster": NAME}


@dataclass(frozen=True)
class Seen:
    """A member in a node's view."""

    state: str
    address: str
    epoch: int
    incarnation: int
    claimed_twice: bool


@dataclass(frozen=True)
class Change:
    """A line of a node's log: what it came to believe of a member."""

    by: str
    node: str
    state: str


View = dict[str, Seen]
Ask = "Callable[[int], list[dict[str, object]]]"


class Views:
    """The views of the nodes; `ask(index)` is how a node's list of members is got, else over the wire."""

    def __init__(self, cluster: Cluster, ask: Ask | None = None) -> None:
        self._cluster = cluster
        self._ask = ask or self._members
        self._clients: dict[str, blocking.Client] = {}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _members(self, index: int) -> list[dict[str, object]]:
        address = self._cluster.node(index).address
        try:
            if address not in self._clients:
                self._clients[address] = blocking.connect(address, timeout_ms=30_000)
            return self._clients[address].call("members")
        except GossipKVError as error:
            if address in self._clients:
                self._clients.pop(address).close()
            raise ConnectionError(str(error)) from error

    def of(self, index: int) -> View:
        return {member.pop("node"): Seen(**member) for member in self._ask(index)}

    def states(self, index: int) -> dict[str, str]:
        return {name: seen.state for name, seen in self.of(index).items()}

    def until(self, holds: Callable[[View], bool], by: Iterable[int], *, within_s: float = PATIENCE_S) -> float:
        """Wait until it holds in the views of all of them at a time; how long that took."""
        began_s = time.monotonic()
        while wrong := self._wrong(holds, by):
            if time.monotonic() - began_s > within_s:
                message = f"after {within_s:.0f} s n{wrong[0]} still sees {wrong[1]}"
                raise AssertionError(message)
            time.sleep(POLL_S)
        return time.monotonic() - began_s

    def _wrong(self, holds: Callable[[View], bool], by: Iterable[int]) -> tuple[int, object] | None:
        for index in by:
            try:
                view = self.of(index)
            except ConnectionError as error:
                return index, error
            if not holds(view):
                return index, view
        return None

    def mark(self) -> dict[str, int]:
        return {node.name: Path(node.log).stat().st_size for node in self._cluster.status()}

    def changes(self, since: dict[str, int]) -> list[Change]:
        """What nodes have come to believe since then."""
        found = []
        for node in self._cluster.status():
            with Path(node.log).open("rb") as log:
                log.seek(since.get(node.name, 0))
                for line in log:
                    entry = json.loads(line) if line.startswith(b"{") else {}
                    if entry.get("event") == "member":
                        found.append(Change(node.name, entry["node"], entry["state"]))
        return found

    def declared_dead(self, since: dict[str, int], *, by: Iterable[str] | None = None) -> set[str]:
        """Whom any node (of these) has taken for dead since then."""
        observers = None if by is None else set(by)
        return {
            change.node
            for change in self.changes(since)
            if change.state == "dead" and (observers is None or change.by in observers)
        }


def alive(names: Iterable[str]) -> Callable[[View], bool]:
    wanted = set(names)
    return lambda view: {name for name, seen in view.items() if seen.state == "alive"} == wanted


def names(indexes: Iterable[int]) -> list[str]:
    return [f"n{index}" for index in indexes]
