"""Random streams of HTTP, judged by the oracle; the gateway and the loop are compared with the oracle.

A number identifies a stream: `stream_of` draws the same one again.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import trio

from tests.oracle import http
from tests.unit.serving.http_requests import cut, stream
from tests.unit.serving.http_world import DATE, TABLE, Gateway, result_of, write_result_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    AnswerStream = Callable[[list[bytes]], "Told"]

MAX_REQUESTS = 4


class Told(NamedTuple):
    """The answers to a stream, the rest for the gateway (None: nothing), and whether the connection ends."""

    answered: bytes
    left: bytes | None
    ends: bool


def stream_of(number: int) -> tuple[int, list[bytes]]:
    """Return the number of requests, and the pieces in which the stream arrives."""
    draw = random.Random(number)
    requests = draw.randint(1, MAX_REQUESTS)
    return requests, cut(draw, stream(draw, requests))


def judge_all(
    numbers: Iterable[int], answer_stream: AnswerStream | None = None, *, gateway_each: int = 1
) -> Counter[str]:
    """Compare `answer_stream`, and the gateway for each `gateway_each`-th stream, with the oracle.

    Returns the number of requests, and the counts of results.
    """
    seen: Counter[str] = Counter()

    async def judge_each() -> None:
        for number in numbers:
            requests, pieces = stream_of(number)
            seen["requests"] += requests
            try:
                seen.update(await judge(pieces, answer_stream, by_gateway=number % gateway_each == 0))
            except Exception as error:
                raise AssertionError(f"stream {number}: {pieces}") from error

    trio.run(judge_each)
    return seen


async def judge(
    pieces: list[bytes], answer_stream: AnswerStream | None = None, *, by_gateway: bool = True
) -> list[str]:
    """Judge one stream; return the statuses of its plain requests, and the kind of the rest."""
    data = b"".join(pieces)
    reading = http.read(data, {TABLE.encode()})
    expected = expected_answers(reading)
    if by_gateway:
        gateway = Gateway()
        assert await gateway.answers(data[: reading.at]) == expected
        assert gateway.exchange.is_closing is (reading.left == "unread")
    if answer_stream is not None:
        told = answer_stream(pieces)
        assert told.answered == b"".join(expected)
        assert told.ends is (reading.left == "unread")
        left = data[reading.at :] if reading.left in {"partial", "strange"} else None
        if reading.left == "partial" and told.left is None:
            assert not await Gateway().answers(data[reading.at :]), "the gateway would not wait for the rest"
        else:
            assert told.left == left
    return [*(answer[9:12].decode() for answer in expected), reading.left]


def expected_answers(reading: http.Reading) -> list[bytes]:
    """Return the oracle's answers to the plain requests."""
    return [http.answer(request, result_for(request), date=DATE) for request in reading.plain]


def result_for(request: http.Plain) -> http.Found | http.Written | http.Failed:
    database = request.database.decode()
    if request.method in http.READS:
        return result_of(database, request.key)
    return write_result_of(database, request.key, request.body if request.method == b"PUT" else None, request.token)
