"""The methods of a client, written once for every shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn, TypeVar

from gossipkv.client import reads
from gossipkv.client._client import call_request
from gossipkv.client.asking import Shell
from gossipkv.client.dataset import Dataset
from gossipkv.client.owners import ByMap
from gossipkv.client.sessions import Session
from gossipkv.client.table import Table
from gossipkv.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.client.asking import Asked
    from gossipkv.wire.rpc import Value

_Whole = TypeVar("_Whole")


class Calls(Shell):
    """The methods of a client."""

    __slots__ = ()
    PLACE: ClassVar[str] = "gossipkv"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client cannot be pickled; connect in each process that uses it")

    def __repr__(self) -> str:
        where = "not connected" if self.address is None else f"connected to {self.address}"
        return f"<{self.PLACE}.Client {where}>"

    def dataset(self, name: str) -> Dataset:
        """Return the dataset `name`; the first read is the first request to the node."""
        return Dataset(self, name)

    def table(self, name: str, *, by_map: bool = False) -> Table:
        """Return the table `name`; the first read or write is the first request to the node.

        With `by_map`, requests for one key go to one of its owners, over a connection to each owning node.
        """
        return Table(self, name, ByMap(name, self.now) if by_map else None)

    def session(self, text: str | None = None) -> Session:
        """Return a new session, for reads and writes by any client of this cluster.

        Args:
            text: The result of `Session.to_text`, to continue that session.

        Raises:
            BadRequest: the text is not of a session.
        """
        return Session(text)

    def ping(self) -> Asked[None]:
        """Return if the node answers.  Raises as `call`, like every request."""
        return self._call("ping", (), _check_pong)

    def info(self) -> Asked[dict[str, Value]]:
        """Return the node's own state: `version`, `cluster`, `counters` and more (`docs/reference/methods.md`)."""
        return self._call("info", (), lambda result: reads.map_of("info", result))

    def databases(self) -> Asked[list[dict[str, Value]]]:
        """Return the databases that the node knows: `name`, `kind`, and for datasets `version` and `partitions`."""
        return self._call("databases", (), lambda result: reads.maps_of("databases", result))

    def status(self, database: str | None = None) -> Asked[dict[str, Value]]:
        """Return all that live nodes hold, build and serve of one database or all: by name, version and partition."""
        return self._call("status", _of(database), lambda result: reads.map_of("status", result))

    def verdict(self, database: str | None = None) -> Asked[dict[str, Value]]:
        """Return the verdict on the cluster or one database: `level` (well, attention, trouble), `text`, `reasons`.

        The node asks all members, so every node gives the same answer.
        """
        return self._call("verdict", _of(database), lambda result: reads.map_of("verdict", result))

    def members(self) -> Asked[list[dict[str, Value]]]:
        """Return the members of the cluster, including dead and left ones: `node`, `address`, `state`, `epoch`."""
        return self._call("members", (), lambda result: reads.maps_of("members", result))

    def children(self, path: str = "", *, everything: bool = False) -> Asked[list[str]]:
        """Return the names below a path of the tree that live nodes publish; with `everything`, those of all nodes."""
        return self._call(
            "children", _below(path, everything), lambda result: reads.list_of("children", result, str, "strings")
        )

    def entries(self, path: str = "", *, everything: bool = False) -> Asked[list[dict[str, Value]]]:
        """Return the keys below a path: `name`, `owner`, `value`, `age_s`, `state`; `everything`: of all nodes."""
        return self._call("entries", _below(path, everything), lambda result: reads.maps_of("entries", result))

    def refresh(self, database: str | None = None) -> Asked[Value]:
        """Make the node scan its source, for one database or all; return the versions seen by name.  Builds follow."""
        return self.call("refresh", database)

    def call(self, method: str, *params: Value, timeout_ms: int | None = None) -> Asked[Value]:
        """Call any method of the protocol (`docs/reference/methods.md`), and return its result as it came.

        Raises:
            GossipKVError: the node answered with an error, which has its class in `gossipkv.errors`.
            Unavailable, TimedOut, ProtocolError: there was no answer.
            Unknown: there was no answer, and the method may not be repeated: the request may have been done.
        """
        reads.check_text("the method", method)
        return self.ask(call_request(method, params), timeout_ms, _as_it_came)

    def _call(self, method: str, params: tuple[Value, ...], finish: Callable[[Value], _Whole]) -> Asked[_Whole]:
        return self.ask(call_request(method, params), None, finish)


def _of(database: str | None) -> tuple[Value, ...]:
    return () if database is None else ({"database": database},)


def _below(path: str, everything: bool) -> tuple[Value, ...]:  # noqa: FBT001  # Both are positional on the wire.
    return (path, {"all": True}) if everything else (path,)


def _as_it_came(result: Value) -> Value:
    return result


def _check_pong(result: Value) -> None:
    if result != "pong":
        raise ProtocolError(f"the node answered ping with {result!r} instead of 'pong'")
