"""The client's end of a connection in plain Python: the results that a stream of bytes must lead to.

Written from docs/users/wire.md, with the slow scanner and msgpack's own decoder, in one pass over the whole stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgpack

from tests.oracle import msgpack_scanner


def encode(message_id: int, method: str, params: list[object]) -> bytes:
    return msgpack.packb([0, message_id, method, params])


def is_value(value: object) -> bool:
    return value is None or isinstance(value, bytes)


def is_well_formed(method: str, params: list[object], result: object) -> bool:
    """Return True if `result` has the form of the method's answers; methods other than reads may answer anything.

    `columns` is a `get_many` and `page` a `scan`, whose results become columns.
    """
    if method == "page":
        match result:
            case [[*records], _, str() | bytes()]:
                return all(isinstance(record, list) and len(record) == 2 for record in records) and all(
                    isinstance(part, bytes) for record in records for part in record
                )
        return False
    if method not in {"get", "get_many", "columns"}:
        return True
    if not (isinstance(result, list) and len(result) == 2 and isinstance(result[1], (str, bytes))):
        return False
    if method == "get":
        return is_value(result[0])
    return isinstance(result[0], list) and len(result[0]) == len(params[1]) and all(map(is_value, result[0]))


@dataclass
class Conversation:
    """The results of a stream.

    `requests` are those in flight, by id; `abandoned` has the ids whose answers are discarded. `answers` become `(id,
    "result", result)`, `(id, "error", code)` or `(id, "odd", None)`. `failure` is the reason of the end.
    """

    requests: dict[int, tuple[str, list[object]]]
    abandoned: set[int] = field(default_factory=set)
    limits: dict[str, int] = field(default_factory=dict)
    answers: list[tuple[int, str, object]] = field(default_factory=list)
    failure: str | None = None

    def hear(self, stream: bytes) -> None:
        while stream and self.failure is None:
            length = msgpack_scanner.scan(stream, **self.limits)
            if length is None:
                return
            if isinstance(length, tuple):
                self.failure = length[0]
                return
            self._frame(stream[:length])
            stream = stream[length:]

    def _frame(self, frame: bytes) -> None:
        try:
            message = msgpack.unpackb(frame, raw=False, strict_map_key=True)
        except ValueError:
            self.failure = "undecodable"
            return
        if not (isinstance(message, list) and len(message) == 4 and type(message[0]) is int and message[0] == 1):
            self.failure = "no answer"
            return
        _, message_id, error, result = message
        if type(message_id) is not int or message_id not in self.requests:
            self.failure = "unasked"
            return
        method, params = self.requests.pop(message_id)
        if message_id in self.abandoned:
            self.abandoned.remove(message_id)
        elif error is not None:
            is_ours = isinstance(error, list) and len(error) > 1 and all(isinstance(part, str) for part in error[:2])
            self.answers.append((message_id, "error", error[0] if is_ours else None))
        elif is_well_formed(method, params, result):
            self.answers.append((message_id, "result", result))
        else:
            self.answers.append((message_id, "odd", None))
