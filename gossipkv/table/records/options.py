"""The options of a read or a write of records, and the time limits of all requests about tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import BadRequest
from gossipkv.register.metadata.pages import MAX_CONFIG
from gossipkv.wire.arguments import MAX_TIMEOUT_MS, NO_OPTIONS

if TYPE_CHECKING:
    from gossipkv.wire.arguments import Arguments, OptionArguments

DECISION_MS: Final = 10_000  # Default timeout of a METADATA transaction or a comparison of replicas.
MAX_DECISION_MS: Final = 60_000
RECORD_MS: Final = 1000  # Default timeout of a read or a write.


class RecordOptions(NamedTuple):
    """The parsed options of a read or a write of records."""

    given: OptionArguments
    timeout_s: float
    local: bool  # True: ask no other node.
    token: bytes = b""
    wait_s: float = 0.0
    config: int = 0  # The config id of the client's map; 0: not given.


DEFAULTS: Final = RecordOptions(NO_OPTIONS, RECORD_MS / 1000, local=False)


def record_options(arguments: Arguments, *specific: str) -> RecordOptions:
    """Read the options of a request that `specific` names, and the options that all requests have.

    Raises:
        BadRequest: an option is unknown, has a wrong type, or asks for a version, which tables do not have.
    """
    options = arguments.options(*specific, "token", "wait_ms", "timeout_ms", "config", "version", "min_version")
    if options is NO_OPTIONS:  # Most requests have none.
        return DEFAULTS
    for name in ("version", "min_version"):
        if options.text(name) is not None:
            raise BadRequest(
                f"{arguments.method}: a table has no versions, as a dataset has: leave {name} out", {"option": name}
            )
    wait_ms = options.number("wait_ms", most=MAX_TIMEOUT_MS) or 0
    config = options.number("config", most=MAX_CONFIG) or 0
    timeout_ms = options.timeout_ms()
    timeout_s = (RECORD_MS if timeout_ms is None else timeout_ms) / 1000
    token, local = options.blob("token") or b"", "local" in specific and options.flag("local")
    return RecordOptions(options, timeout_s, local, token, min(wait_ms / 1000, timeout_s), config)
