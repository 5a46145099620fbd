r"""Tab-separated text: one record a line, the key before the first TAB, the value after it.

    line   = key TAB value LF
    key    = any bytes but TAB and LF
    value  = any bytes but LF

Nothing is decoded, quoted or escaped: what stands between the separators is what is served.

* The last line may lack its LF.
* A CR before the LF belongs to the value, as every other byte does.  (Text mode readers would drop it; a store of
  bytes that drops one is not one.  `sed 's/\r$//'` is the way for files from Windows.)
* An empty line is skipped: no record can look like it, and it ends many a file.
* Every other line without a TAB is an error, and so is a key or value over the limit of the sorted file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from gossipkv.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Record = tuple[bytes, bytes]

# The limits of the sorted file.
MAX_KEY_BYTES = 65_535
MAX_VALUE_BYTES = 16 << 20

# Of a wrong line, in a message: what fits into a line of a terminal with the rest.
SHOWN_BYTES = 40

TAB = b"\t"
LF = b"\n"


def records(chunks: Iterable[bytes], name: str, *, max_value_bytes: int = MAX_VALUE_BYTES) -> Iterator[Record]:
    """The records of a file in order; `name` is what errors call it.

    Holds one chunk, its lines, and twice the longest line.  `max_value_bytes` may be below the limit of the sorted
    file where memory is short.

    Raises:
        SourceError: with `file`, `line` (from 1) and `offset` (of the line's first byte) in its details.
    """
    limit = max_value_bytes
    short = min(limit, MAX_KEY_BYTES)  # No line up to this length can be over a limit.
    carried: list[bytes] = []  # The beginning of a line that the chunks so far do not end.
    carried_bytes = 0
    number = 1
    offset = 0
    for chunk in chunks:
        end = chunk.find(LF)
        if end < 0:
            carried.append(chunk)
            carried_bytes += len(chunk)
            if carried_bytes > MAX_KEY_BYTES + 1 + limit:
                _refuse(b"".join(carried), name, number, offset, limit)
            continue
        carried.append(chunk[:end])
        line = b"".join(carried)
        carried.clear()
        if line:
            yield _record(line, name, number, offset, limit)
        offset += len(line) + 1
        number += 1
        last = chunk.rfind(LF)
        if last > end:
            block = chunk[end + 1 : last]
            lines = block.split(LF)
            for line in lines:
                key, tab, value = line.partition(TAB)
                if not tab or len(line) > short:
                    if not line:
                        continue
                    _check(lines, name, number, offset, limit)
                yield key, value
            offset += len(block) + 1
            number += len(lines)
        carried.append(chunk[last + 1 :])
        carried_bytes = len(carried[0])
    line = b"".join(carried)
    if line:
        yield _record(line, name, number, offset, limit)


def _record(line: bytes, name: str, number: int, offset: int, limit: int) -> Record:
    key, tab, value = line.partition(TAB)
    if not tab or len(key) > MAX_KEY_BYTES or len(value) > limit:
        _refuse(line, name, number, offset, limit)
    return key, value


def _check(lines: list[bytes], name: str, number: int, offset: int, limit: int) -> None:
    """Finds the first wrong line among `lines`, if any; `number` and `offset` are those of the first."""
    for index, line in enumerate(lines):
        if line:
            _record(line, name, number + index, offset, limit)
        offset += len(line) + 1


def _refuse(line: bytes, name: str, number: int, offset: int, limit: int) -> NoReturn:
    key, tab, value = line.partition(TAB)
    if not tab and len(line) <= MAX_KEY_BYTES:
        reason = f"no TAB in the line {_shown(line)}"
    elif len(key) > MAX_KEY_BYTES:
        what = "a key" if tab else "no TAB, or a key"
        reason = f"{what} of {len(key):,} bytes or more, beginning {_shown(key)}; the limit is {MAX_KEY_BYTES:,}"
    else:
        reason = f"the value of key {_shown(key)} has {len(value):,} bytes or more; the limit is {limit:,}"
    raise SourceError(
        f"{name}: line {number:,}, byte {offset:,}: {reason}",
        {"file": name, "line": number, "offset": offset, "reason": reason},
    )


def _shown(text: bytes) -> str:
    """The beginning of it, for a message."""
    return repr(text[:SHOWN_BYTES])[1:] + ("…" if len(text) > SHOWN_BYTES else "")
