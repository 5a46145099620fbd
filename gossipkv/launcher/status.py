"""The status of a node, and the message about a node that failed."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.client import blocking
from gossipkv.errors import GossipKVError, LocalError, NotReady, TimedOut

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


TOLD_LINES: Final = 15  # Lines of a failed node's log in its error.
TOLD_BYTES: Final = 8 << 10


def signal_name(number: int) -> str:
    """Name a signal as `kill -l` does; most real-time signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def reason(error: OSError, place: Path) -> str:
    """Describe a refusal of the system and its place: `place`, if the error names no file (as for a full disk)."""
    return f"{error.filename or place}: {error.strerror or error}"


@final
@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node as its supervisor sees it.

    Attributes:
        index: Its number, from 1.
        name: Its name in its cluster.
        address: The address at which it answers, `HOST:PORT`.
        state: `starting`, `ready`, `stopped` (by SIGSTOP) or `ended`.
        process: Its process id; None once it has ended.
        uptime_s: Seconds since its last start; None once it has ended.
        exit_status: Below zero, the signal that ended it; None while it runs.
        error: The reason for which it could not be started, or None.
        asked: True if its end was requested.
        data: Its data directory.
        log: The file of its whole log.
        log_from: Offset of its last start in that file, in bytes.
        http: The address at which it answers HTTP, `HOST:PORT`, or None.
    """

    index: int
    name: str
    address: str
    state: str
    process: int | None = None
    uptime_s: float | None = None
    exit_status: int | None = None
    error: str | None = None
    asked: bool = True
    data: str = ""
    log: str = ""
    log_from: int = 0
    http: str | None = None

    @property
    def failed(self) -> bool:
        """True if it ended by itself."""
        return self.state == "ended" and not self.asked

    def last_words(self) -> list[str]:
        """Return the end of its log since it was started; empty if there is no log."""
        try:
            with Path(self.log).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self.log_from, size - TOLD_BYTES))
                return file.read().decode(errors="replace").splitlines()[-TOLD_LINES:]
        except OSError:
            return []

    def end(self) -> str:
        """Describe its end."""
        if self.error is not None:
            return f"could not be started ({self.error})"
        if self.exit_status is None:
            return "ended"
        if self.exit_status < 0:
            return f"ended by {signal_name(-self.exit_status)}"
        return f"ended with status {self.exit_status}"


class NodeFailed(LocalError):
    """A node ended by itself or did not get ready; the message has the end of its log, `details` both in parts."""

    @classmethod
    def of(cls, node: NodeStatus, what: str | None = None) -> NodeFailed:
        """Make the error of a node: `what`, else a description of its end."""
        words = f"{what or f'{node.name} {node.end()}'}; the end of {node.log}:"
        last_lines = node.last_words() or ["(nothing)"]
        message = "\n".join([words, *(f"    {line}" for line in last_lines)])
        return cls(message, {"node": node.index, "words": words, "said": [*last_lines]})


ANSWER_MS: Final = 500  # Short, since a busy node must not delay the others; each is asked again.
READ_MS: Final = 90  # So short that the client does not wait for a dataset that is coming: there is more to ask for.
ANY_KEY: Final = b"any"


class Unread(NamedTuple):
    """A dataset that a node does not answer for, or its source or status as a whole."""

    database: str
    node: str
    why: str
    is_coming: bool  # It is being built, or will be, and no obstacle is known.


def unread(nodes: Iterable[NodeStatus]) -> Iterator[Unread]:
    """Yield datasets that cannot be read at these nodes, in order; of a silent node, its status."""
    for node in nodes:
        try:
            with blocking.Client([node.address], timeout_ms=ANSWER_MS, follows=False) as client:
                if (why := client.info().get("source_error")) is not None:
                    yield Unread("the source", node.name, str(why), is_coming=False)
                for database in client.databases():
                    if database.get("kind", "dataset") == "dataset":
                        yield from _unread(client, str(database["name"]), node)
        except GossipKVError as error:
            yield Unread("the status", node.name, error.message, isinstance(error, TimedOut))


def _unread(client: blocking.Client, database: str, node: NodeStatus) -> Iterator[Unread]:
    try:
        client.call("get", database, ANY_KEY, timeout_ms=READ_MS)
    except (NotReady, TimedOut) as error:
        is_coming = isinstance(error, TimedOut) or error.details.get("coming") is True
        yield Unread(database, node.name, error.message, is_coming)
