"""The audit: the event `operated` of each operation that changes something, with its caller, object and result.

Writes of single records are no operations. An operation of several requests (a backup, a range that is deleted page by
page) is logged when it begins, when it ends, and at most once a minute between.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, final

from gossipkv.errors import GossipKVError, Internal
from gossipkv.log import Log, Sparing
from gossipkv.settings.masking import mask_cut_url, mask_url
from gossipkv.status.words import plain
from gossipkv.wire.results import DeferredResult, Later

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Completion, Packed, ProvenUser
    from gossipkv.wire.rpc import Raw, Value

    T = TypeVar("T")

RUNNING: Final = "running"
PAGES: Final = "delete_range"  # Its answer has a cursor while a page is left.
MAX_CHARACTERS: Final = 1000  # A key may have 64 KiB, and a request names thousands.
# Options that say how to ask, and not what to do.
_ASKING: Final = frozenset({b"operation", b"timeout_ms", b"wait_ms", b"token", b"config", b"level", b"cursor"})


@final
class Audit:
    """Logs operations; `now` returns seconds of a clock that does not go back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._running = Sparing()
        self._log = Log("gossipkv.audit")

    def log(self, operation: AuditedRequest, result: str, reason: str | None = None) -> None:
        """Log an operation, unless it runs and was logged just now."""
        user, address, method, named, options = facts = operation.facts
        if result != RUNNING or self._running.lets(self._now(), *facts):
            self._log.info(
                "operated",
                user=user,
                address=address,
                method=method,
                object=named,
                options=options,
                result=result,
                reason=reason,
            )


@final
class AuditedRequest:
    """An operation of one request, until it has a result."""

    def __init__(self, audit: Audit, arguments: Arguments, user: str, address: str) -> None:
        self._audit, self._method = audit, arguments.method
        maps = [value for value in arguments.values if isinstance(value, dict)]
        given = {_words(name): value for options in maps for name, value in options.items() if name not in _ASKING}
        named = " ".join(_words(value) for value in arguments.values if not isinstance(value, dict))
        options = " ".join(f"{name}={_words(value)}" for name, value in given.items())
        self.facts = user, address, self._method, named, options

    def watched(self, result: T | DeferredResult | Later) -> T | DeferredResult | Later:
        """Return the result of the method, which logs itself once it is there."""
        if isinstance(result, DeferredResult):
            return DeferredResult(partial(self._awaited, result), result.shared_by)
        if isinstance(result, Later):
            return Later(partial(self._completed, result))
        self.end(result)
        return result

    def end(self, result: object) -> None:
        """Log the result, or the error."""
        match result:
            case GossipKVError():
                self._audit.log(self, result.code, mask_url(result.message)[:MAX_CHARACTERS])
            case Exception():
                self._audit.log(self, Internal.code)
            case BaseException():
                self._audit.log(self, "cancelled")
            case {"state": str(state)} if state != "done":
                self._audit.log(self, state)
            case {"changed": False}:
                self._audit.log(self, "unchanged")
            case [_, bytes(), _] if self._method == PAGES:
                self._audit.log(self, RUNNING)
            case _:
                self._audit.log(self, "done")

    async def _awaited(self, deferred: DeferredResult) -> Value | Packed | ProvenUser:
        try:
            value = await deferred.result()
        except BaseException as error:
            self.end(error)
            raise
        self.end(value)
        return value

    def _completed(self, later: Later, complete: Completion[Value | Packed]) -> object:
        def completed(result: Value | Packed | GossipKVError) -> object:
            self.end(result)
            return complete(result)

        try:
            return later.begin(completed)
        except Exception as error:
            self.end(error)
            raise


def _words(value: Raw) -> str:
    """Return a parameter for people, without secrets."""
    is_long = False
    if isinstance(value, list | bytes | str):
        is_long = len(value) > MAX_CHARACTERS
        value = value[:MAX_CHARACTERS]  # More is not shown, and would take the serving thread's time.
    if isinstance(value, list):
        text = ",".join(map(_words, value))
    else:
        text = plain(value.decode(errors="backslashreplace") if isinstance(value, bytes) else value)
        text = mask_cut_url(text) if is_long else mask_url(text)
    return f"{text[:MAX_CHARACTERS]}..." if is_long or len(text) > MAX_CHARACTERS else text
