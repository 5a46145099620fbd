"""Writes of RESP with keys of several tables, or with more of them than one request takes: MSET, DEL and UNLINK.

The batches are written one after the other, each with the session of the one before, so the last value of a key counts.
All are checked before the first one is written, so that no limit or missing right refuses a part of a command.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import msgpack
import trio

from gossipkv.errors import BadRequest, GossipKVError
from gossipkv.serving.resp_words import RefusedError
from gossipkv.wire.results import Later, Packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.wire.results import DeferredResult
    from gossipkv.wire.rpc import Value

    Answer = Value | Packed | DeferredResult | Later
    Batch = dict[str, list[Value]]  # By table: keys, or keys with their values.

BATCH_KEYS: Final = 1000  # Python takes some 10 µs for each, and serves others between batches.
MAX_DIGITS: Final = 20


def words_of(data: bytes) -> Iterator[bytes]:
    """Yield the words of a command as they came: `$<size>`, line end, bytes, line end.  Raises BadRequest."""
    at = 0
    while at < len(data):
        line = data.find(b"\r\n", at, at + MAX_DIGITS + 3)
        digits = data[at + 1 : line]
        if line < 0 or not digits.isdigit():
            raise BadRequest("resp: the words must be bulk strings of RESP")
        end = line + 2 + int(digits)
        yield data[line + 2 : end]
        at = end + 2


def batches_of(data: bytes, divided: Callable[[bytes], tuple[str, bytes]], *, has_values: bool) -> Iterator[Batch]:
    """Yield the rows of a command; `divided` returns the table and the key of a word.  Raises RefusedError."""
    words = words_of(data)
    while keys := [*islice(words, 2 * BATCH_KEYS if has_values else BATCH_KEYS)]:
        if has_values and len(keys) % 2:
            raise RefusedError("ERR wrong number of arguments for 'mset' command")
        batch: Batch = {}
        for number, word in enumerate(keys[::2] if has_values else keys):
            table, key = divided(word)
            batch.setdefault(table, []).append([key, keys[2 * number + 1]] if has_values else key)
        yield batch


async def write_all(
    batches: Callable[[], Iterator[Batch]],
    check: Callable[[str], object],
    call: Callable[[str, list[Value], dict[str, Value]], Answer],
    token: bytes,
) -> tuple[int, bytes]:
    """Write all rows; return their number, and the token of the session then.  Raises GossipKVError.

    `check` raises Unauthorized; `call` checks the rows at once, and writes them later.
    """
    for batch in batches():
        for table, rows in batch.items():
            check(table)
            call(table, rows, {})
        await trio.lowlevel.checkpoint()
    count = 0
    for batch in batches():
        for table, rows in batch.items():
            token = await _result(call(table, rows, {"token": token} if token else {}))
            count += len(rows)
    return count, token


async def _result(answer: Answer) -> bytes:
    """Return the token of a write when it is done."""
    assert isinstance(answer, Later), "tables answer otherwise"
    ended, results = trio.Event(), list[object]()

    def complete(result: object) -> None:
        results.append(result)
        ended.set()

    answer.begin(complete)
    await ended.wait()
    (result,) = results
    if isinstance(result, GossipKVError):
        raise result
    token = msgpack.unpackb(result.data) if isinstance(result, Packed) else result
    assert isinstance(token, bytes), "a write of several records is not smeared"
    return token
