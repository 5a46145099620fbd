"""The answers of a node to requests: its methods, as a table, and the answers to their errors.

A method takes its arguments and returns its result, or raises one of our errors. It runs to its end within the serving
task, so it must not block. A method that has to wait returns a `DeferredResult`, which the node runs as a task, or a
`Later`, which calls back.

Every other exception is a defect: the client gets INTERNAL with an id, and the log gets the traceback under that id.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Protocol, final

import msgpack

from gossipkv.access.rights import OPERATIONS, Right
from gossipkv.errors import (
    WRITES_ARE,
    GossipKVError,
    Internal,
    LocalError,
    StorageError,
    Unauthorized,
    Unavailable,
    UnknownMethod,
    to_wire,
)
from gossipkv.log import Log
from gossipkv.node.access import shown
from gossipkv.node.audit import Audit, AuditedRequest
from gossipkv.serving.loop import Caller, GatheredWrites, ProvenResult, Refusal
from gossipkv.wire.arguments import Arguments, name_of
from gossipkv.wire.results import DeferredResult, Later, Packed, ProvenUser

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from gossipkv.node.access import Access
    from gossipkv.wire.rpc import Value

    Method = Callable[[Arguments], Value | Packed | DeferredResult | Later]
    OfCaller = Callable[[Arguments, Caller], Value | Packed | ProvenUser | DeferredResult | Later]

# A packer keeps its buffer, which saves most of the cost of packing a small result; larger buffers are dropped.
LARGE_BYTES = 1024 * 1024


class BeginWrites(Protocol):
    """Begins gathered writes; see `table.records.gathered`."""

    def __call__(
        self, gathered: list[GatheredWrites], refuse: Callable[[GossipKVError], object], *, may_wait: bool
    ) -> bool: ...


@final
class Handlers:
    """Answers the requests that the serving loop hands off."""

    def __init__(
        self,
        methods: Mapping[bytes, Method],
        of_callers: Mapping[bytes, OfCaller],
        access: Access,
        unanswered: Callable[[bytes], Exception],
        random: random.Random,
        *,
        writer: BeginWrites,
    ) -> None:
        """`of_callers`: methods that depend on the caller; `unanswered`: the error of a read that no node answered.

        `writer` begins gathered writes, and gets a function that packs an error for a client.
        """
        self.errors: Counter[str] = Counter()  # Counts by code.
        self._methods, self._of_callers = methods, of_callers
        self._access, self._unanswered, self._random, self._writer = access, unanswered, random, writer
        self._packer = _make_packer()
        self._audit = Audit(access.now)
        self._log = Log("gossipkv.node")

    def answer(
        self, method: bytes | None, params: bytes, caller: Caller
    ) -> bytes | Refusal | ProvenResult | DeferredResult | Later:
        """Return the result as MessagePack, an error, or a request that takes time: to `complete` or to `begin`.

        Never raises. Without a method, the parameters are the report of a read that no other node has answered.
        """
        if method is None:
            return self._refuse(b"get", self._unanswered(params))
        operation = None
        try:
            arguments = Arguments(method, params)
            of_caller, own = self._of_callers.get(method), self._methods.get(method, _unknown)
            is_known = of_caller is not None or own is not _unknown
            if not self._access.is_open and is_known and method != b"resp":
                self._access.judge(arguments, caller)
            if method in OPERATIONS and is_known:
                operation = AuditedRequest(self._audit, arguments, self._access.name_of(caller), shown(caller.address))
            result = own(arguments) if of_caller is None else of_caller(arguments, caller)
            if operation is not None:
                result = operation.watched(result)
            if isinstance(result, DeferredResult | Later):
                return result
            return self._pack(result)
        except Exception as error:  # noqa: BLE001  # Every defect becomes an answer and a log line.
            if operation is not None:
                operation.end(error)
            return self._refuse(method, error)

    async def complete(self, method: bytes, waiting: DeferredResult) -> bytes | Refusal | ProvenResult:
        """Return the result of a `DeferredResult`, or the error. Raises nothing but cancellation."""
        try:
            return self._pack(await waiting.result())
        except Exception as error:  # noqa: BLE001  # The rule of `answer` holds here.
            return self._refuse(method, error)

    def begin(self, method: bytes, later: Later, on_answer: Callable[[bytes | Refusal], None]) -> object:
        """Begin a `Later`, and return what that returns; `on_answer` is called once with its result. Never raises."""
        is_answered = False

        def on_result(result: Value | Packed | GossipKVError) -> None:
            nonlocal is_answered
            assert not is_answered, "a request is answered once"
            is_answered = True
            try:
                answer = self._refuse(method, result) if isinstance(result, GossipKVError) else self._packed(result)
            except Exception as error:  # noqa: BLE001  # The rule of `answer` holds here.
                answer = self._refuse(method, error)
            on_answer(answer)

        try:
            return later.begin(on_result)
        except Exception as error:  # noqa: BLE001  # The rule of `answer` holds here.
            answer = self._refuse(method, error)
            if not is_answered:
                is_answered = True
                on_answer(answer)
            return None

    def may_write(self, user: int, table: str) -> bool:
        """Return True if a user, by number, may write to a table."""
        return self._access.may(user, Right.WRITE, table)

    def begin_writes(self, gathered: list[GatheredWrites], *, may_wait: bool) -> bool:
        """Begin gathered writes; return False if they are to be gathered further. Never raises.

        Those that are not begun then are to be answered one by one.
        """
        try:
            return self._writer(gathered, partial(self._refuse, b"put"), may_wait=may_wait)
        except Exception as error:  # noqa: BLE001  # The rule of `answer` holds here; the other answers tell more.
            self._refuse(b"put", error)
            return True

    def _refuse(self, method: bytes, error: Exception) -> Refusal:
        if isinstance(error, StorageError):  # The disk failed, which is no defect.
            error = Unavailable(error.message, error.details)
        if not isinstance(error, GossipKVError) or isinstance(error, LocalError):
            return self._internal_error(method, error)
        try:
            refused = Refusal(self._packed(to_wire(error)), ends=method == b"hello" and isinstance(error, Unauthorized))
        except (TypeError, ValueError, OverflowError) as defect:  # The error itself cannot be encoded.
            return self._internal_error(method, defect)
        self.errors[error.code] += 1
        return refused

    def _internal_error(self, method: bytes, defect: Exception) -> Refusal:
        incident = f"{self._random.getrandbits(64):016x}"
        self._log.error("internal_error", id=incident, method=name_of(method), exc_info=defect)
        words = f"the request met a defect of the node; its log has the traceback under {incident}"
        internal = Internal(words, {"id": incident})
        self.errors[internal.code] += 1
        return Refusal(self._packed(to_wire(internal)))

    def _pack(self, value: Value | Packed | ProvenUser) -> bytes | ProvenResult:
        return (
            ProvenResult(value.user, self._packed(value.result))
            if isinstance(value, ProvenUser)
            else self._packed(value)
        )

    def _packed(self, value: Value | Packed) -> bytes:
        if isinstance(value, Packed):
            return value.data
        packed: bytes = self._packer.pack(value)
        if len(packed) > LARGE_BYTES:
            self._packer = _make_packer()
        return packed


def _unknown(arguments: Arguments) -> Value:
    name = arguments.method
    instead = f": {WRITES_ARE}" if name in {"set", "del"} else ""  # Other stores call their writes by these names.
    raise UnknownMethod(f"this node has no method {name}{instead}", {"method": name})


def _make_packer() -> msgpack.Packer:
    # File names may be any bytes. Bytes that are not UTF-8 are surrogates in Python, and go out as escapes.
    return msgpack.Packer(unicode_errors="backslashreplace")
