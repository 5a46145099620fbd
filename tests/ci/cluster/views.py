"""The nodes' views of each other, over the wire and from their logs."""

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

PATIENCE_S = 120.0  # Seconds suffice on an idle machine, but sixteen nodes may share two busy cores.
POLL_S = 0.2

# For nodes whose logs are read; a cluster name of their own keeps out tests that look for another cluster at these
# ports.
NAME = f"test-{os.getpid()}"
LOGGED = {"log_format": "json", "cluster": NAME}


@dataclass(frozen=True)
class Seen:
    state: str
    address: str
    epoch: int = 0
    incarnation: int = 0
    claimed_twice: bool = False
    protocol: list[int] | None = None
    misfit: str | None = None


@dataclass(frozen=True)
class Change:
    """A line of a node's log about a member's new state."""

    by: str
    node: str
    state: str


View = dict[str, Seen]
Ask = "Callable[[int], list[dict[str, object]]]"


class Views:
    """The views of the nodes; `ask(index)` returns a node's list of members, by default over the wire."""

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
                self._clients[address] = blocking.Client([address], timeout_ms=30_000, follows=False).dial()
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
        """Wait until it holds in the views of all nodes at once; return how long that took."""
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
        """Return the changes that nodes have logged since the mark."""
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
        """Return the members that any node (of `by`) has declared dead since the mark."""
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
