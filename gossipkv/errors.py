"""Every error that users or peers meet, and its code on the wire, grouped by its cause.

An error names the problem, the place, and the remedy. On the wire it is `[code, message, details]`
(`docs/reference/errors.md`). `from_wire` makes an object of the same class from it, so callers of a client and callers
inside a node catch the same names.

The groups tell the party that can fix the error:

* `RequestError`: the caller. Nothing changed; the same request will fail again.
* `ServiceError`: time, or an operator. The request was valid, and a repetition may succeed.
* `DataError`: the bytes on a disk or on a wire are damaged.
* `LocalError`: this machine's own set-up (settings, files, directories); never sent to a peer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    _Restore = Callable[[type["GossipKVError"], dict[str, object]], "GossipKVError"]

Failure = TypeVar("Failure", bound=BaseException)

DOCS: Final = "https://github.com/gossipkv/gossipkv/blob/main/docs"
# The answer to every attempt to write to a dataset.
WRITES_ARE: Final = f"datasets are published ({DOCS}/users/publish.md), and tables take puts and deletes"

Detail = str | int | float | bytes | bool | None | list["Detail"] | dict[str, "Detail"]


class GossipKVError(Exception):
    """The root: catch it to catch everything that this package raises on purpose.

    Attributes:
        code: The code on the wire; kinds that are never sent have their parent's code.
        message: The problem, the place, and the remedy, for people.
        details: The same in parts, for programs: file, limit, node (`docs/reference/errors.md`).
    """

    code: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, details: dict[str, Detail] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Detail] = {} if details is None else details

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[_Restore, tuple[type[GossipKVError], dict[str, object]]]:
        """Pickle the error, since tasks of pools, Dask or Spark raise it in another process."""
        return _restored, (type(self), self.__dict__)


def _restored(kind: type[GossipKVError], state: dict[str, object]) -> GossipKVError:
    error = kind.__new__(kind, state["message"])
    error.__dict__.update(state)
    return error


class RequestError(GossipKVError):
    """The request itself is wrong; nothing changed, and repeating it will not help."""

    code = "BAD_REQUEST"


class BadRequest(RequestError):
    """The request is malformed, has a wrong type or unknown option, or exceeds a limit; `details`: `limit`, `size`."""


class UnknownMethod(RequestError):
    """The node has no method of that name; `details`: `method`."""

    code = "UNKNOWN_METHOD"


class UnknownDatabase(RequestError):
    """Neither the node, nor its source, nor a known node has a database of that name; `details`: `database`."""

    code = "UNKNOWN_DATABASE"


class UnknownVersion(RequestError):
    """The node does not hold that version of the database; `details`: `database`, `version`, `held`, `active`."""

    code = "UNKNOWN_VERSION"


def no_table(name: str) -> UnknownDatabase:
    """Return the error of a missing table, which tells how to make it."""
    hint = f"create it with `gossipkv table create {name} --kind hash`"
    return UnknownDatabase(f"there is no table {name}; {hint}", {"database": name})


class TooLarge(RequestError):
    """The request, the answer or a value exceeds its limit; `details`: `limit`, and `size` if known."""

    code = "TOO_LARGE"


class ServiceError(GossipKVError):
    """The request was valid, but could not be served now."""

    code = "UNAVAILABLE"


class Unavailable(ServiceError):
    """No node that could answer is reachable, or too few replicas for a write; nothing was written."""


class NotReady(ServiceError):
    """There is no readable version, or none as new as `min_version`, or the node has just joined; try again later.

    `details`: `database`, `coming` (true: soon), `status` (the progress of this node), and `held` and `active` if a
    version was named.
    """

    code = "NOT_READY"


class NotServed(ServiceError):
    """The partition of the key is not on this node; `details`: `database`, `version`, `partition`."""

    code = "NOT_SERVED"


class StaleConfig(ServiceError):
    """The caller's map is older than the partition's: fetch the map again; `details`: the node's `config`."""

    code = "STALE_CONFIG"


class Conflict(ServiceError):
    """Another change came first, and nothing was done: read the state, and decide again; `details`: `config`."""

    code = "CONFLICT"


class WriteLost(ServiceError):
    """The session has seen a write that is lost, or is older than a re-created range: begin a new session.

    `details`: `partition`, `assignment`, `kept`.
    """

    code = "WRITE_LOST"


class TooOld(ServiceError):
    """The token of a change feed is older than the log of every replica, or than a re-created range.

    Begin again with `start="snapshot"`. `details`: `partition`.
    """

    code = "TOO_OLD"


class TimedOut(ServiceError):
    """The time allowed ran out before other nodes answered; nothing was written."""

    code = "TIMEOUT"


class Unknown(ServiceError):
    """The outcome is unknown: the request may or may not have been done, or be done later; it was not repeated.

    From a node: a write was applied, but did not reach its level in time. From a client: a request that must not be
    repeated was sent, and no answer came; `details` has the address, and the cause is chained.
    """

    code = "UNKNOWN"


class Overloaded(ServiceError):
    """A load limit was reached, and nothing was done: try again later; `details`: `limit`."""

    code = "OVERLOADED"


class Unauthorized(ServiceError):
    """The user lacks the right, the token is invalid, or a node is of another cluster or protocol.

    `details`: `auth` is `missing` if this connection has shown no token; or `protocol` and `other`.
    """

    code = "UNAUTHORIZED"


class Internal(ServiceError):
    """A defect in the node, which logged the traceback under the `id` in `details`."""

    code = "INTERNAL"


class DataError(GossipKVError):
    """Bytes are damaged."""

    code = "CORRUPT"


class Corrupt(DataError):
    """A file is damaged, and no other node has the record.

    `details`: `file`, `offset` in bytes, `reason`, and `expected` and `got` if known.
    """

    def __init__(self, file: str, offset: int, reason: str, *, expected: Detail = None, got: Detail = None) -> None:
        details: dict[str, Detail] = {"file": file, "offset": offset, "reason": reason}
        message = f"{file}: damaged at byte {offset}: {reason}"
        if expected is not None or got is not None:
            details |= {"expected": expected, "got": got}
            message += f" (expected {expected!r}, got {got!r})"
        super().__init__(message, details)
        self.file = file
        self.offset = offset
        self.reason = reason


class ProtocolError(DataError):
    """A peer sent bytes that are not the protocol; the connection is unusable afterwards."""

    code = "BAD_REQUEST"


class LocalError(GossipKVError):
    """An obstacle in this machine's own set-up; never sent over a wire."""


class ConfigError(LocalError):
    """A setting is unknown, malformed, or out of its range."""


class StorageError(LocalError):
    """The file system refused: no space, no permission, an I/O error. Names the path."""


class DirectoryInUse(LocalError):
    """Another process holds the data directory."""


class UnsupportedFormat(LocalError):
    """A file or directory of another kind, or of another format than this program reads."""


def other_format(
    what: str, found: int, read: int, do: str = "run that release", **details: Detail
) -> UnsupportedFormat:
    """Return the error for data of another format than `read`; it tells whether that is a newer or an older one."""
    writer = "a newer GossipKV" if found > read else "an older GossipKV"
    words = f"{what} has format {found}, and this program reads format {read}: {writer} wrote it; {do}"
    return UnsupportedFormat(words, {**details, "format": found})


class SourceError(LocalError):
    """A source file cannot be read as expected. Names file and line or offset."""


class SourceChanged(SourceError):
    """A source file changed while it was read; the build starts again with the new content."""


class LimitExceeded(LocalError):
    """A record exceeds a limit of the sorted file; names the limit, the size and the record."""


_BY_CODE: dict[str, type[GossipKVError]] = {
    kind.code: kind for group in (RequestError, ServiceError) for kind in group.__subclasses__()
}


def first_of(errors: BaseExceptionGroup[Failure]) -> Failure:
    """Return the error that ended a nursery: the first one in its groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return cast("Failure", error)


def to_wire(error: GossipKVError) -> list[Detail]:
    """Return `[code, message, details]`."""
    return [error.code, error.message, error.details]


def from_wire(code: str, message: str, details: dict[str, Detail]) -> GossipKVError:
    """Return the error that a peer sent; an unknown code becomes a plain `ServiceError` with the same text."""
    if code == "CORRUPT":
        offset = details.get("offset")
        error = Corrupt(str(details.get("file")), offset if isinstance(offset, int) else 0, str(details.get("reason")))
        error.message, error.details = message, details  # `details` include the expected and the actual value, if sent.
        return error
    kind = _BY_CODE.get(code)
    if kind is None:
        return ServiceError(f"{code}: {message}", details)
    return kind(message, details)
