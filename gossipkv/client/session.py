"""The client's side of a conversation with one node, without any I/O: bytes in, answers out.

A session gives each request an id, remembers which ids are in flight, and cuts what arrives into answers.  Answers
come in any order.  What it insists on: an answer belongs to a request in flight, and belongs to it once.  A peer that
breaks this, or sends bytes that are not the protocol, raises `ProtocolError` and the session is over: nobody could
say any more which answer is whose.

An id is not used again before its answer came.  A request that nobody waits for any more (`abandon`) keeps its id
until then, and the late answer is dropped.

The shells (`blocking`) move the bytes; they hold sockets, clocks and decisions about failing over, and none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import BadRequest, ProtocolError
from gossipkv.wire import rpc
from gossipkv.wire.frames import MAX_FRAME_BYTES, FrameReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import ReadableBuffer

# Ids of requests whose answers nobody awaits; a node that never answers them is left before they pile up.
MAX_ABANDONED: Final = 10_000


@final
class Session:
    """One connection's conversation.

    Args:
        max_frame: Longest answer in bytes that is taken.
        first_id: Id of the first request.
    """

    __slots__ = ("_abandoned", "_in_flight", "_next_id", "_reader")

    def __init__(self, max_frame: int = MAX_FRAME_BYTES, *, first_id: int = 0) -> None:
        self._reader = FrameReader(max_frame)
        self._in_flight: set[int] = set()
        self._abandoned: set[int] = set()
        self._next_id = first_id

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet, abandoned ones included."""
        return len(self._in_flight)

    @property
    def is_clean(self) -> bool:
        """Whether the stream stands between two answers."""
        return self._reader.pending_bytes == 0

    def request(self, method: str, params: Sequence[rpc.Value]) -> tuple[int, bytes]:
        """The id of a new request, and the bytes to send for it.

        Raises:
            BadRequest: a parameter is of a type, or a number of a size, that MessagePack cannot say.
        """
        message_id = self._next_id
        while message_id in self._in_flight:  # Ids wrap; the oldest request may still be open.
            message_id = message_id + 1 if message_id < rpc.MAX_MESSAGE_ID else 0
        try:
            frame = rpc.request(message_id, method, params)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadRequest(f"{method}: the parameters cannot be encoded: {error}") from error
        self._next_id = message_id + 1 if message_id < rpc.MAX_MESSAGE_ID else 0
        self._in_flight.add(message_id)
        return message_id, frame

    def receive(self, data: ReadableBuffer) -> list[rpc.Response]:
        """The answers that `data` completes.

        Raises:
            ProtocolError: the peer broke the protocol; the connection is of no further use.
        """
        self._reader.feed(data)
        answers = []
        for frame in self._reader:
            answer = rpc.decode_response(frame)
            message_id = answer.msgid
            if message_id not in self._in_flight:
                raise ProtocolError(
                    f"an answer with id {message_id}, which no request in flight has: made up, or answered twice",
                    {"id": message_id},
                )
            self._in_flight.remove(message_id)
            if message_id in self._abandoned:
                self._abandoned.remove(message_id)
            else:
                answers.append(answer)
        return answers

    def abandon(self, message_id: int) -> None:
        """Drop the answer to a request when it comes; nothing happens if it came already.

        Raises:
            ProtocolError: the peer owes too many answers that nobody waits for.
        """
        if message_id in self._in_flight:
            self._abandoned.add(message_id)
        if len(self._abandoned) > MAX_ABANDONED:
            raise ProtocolError(f"more than {MAX_ABANDONED} requests stay unanswered")
