"""Output of results: bytes as they are, as hexadecimal or as JSON, to standard output or a file."""

from __future__ import annotations

import contextlib
import gc
import json
import resource
import sys
from typing import TYPE_CHECKING, BinaryIO, Self, final

import click

from gossipkv.processes.streams import flush_or_drop
from gossipkv.status.words import plain, printable
from gossipkv.wire.json_form import json_form
from gossipkv.wire.key_text import shown

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.address import Address
    from gossipkv.wire.rpc import Value


def json_line(value: Value) -> bytes:
    """Return one JSON value and a line feed."""
    return _encoded(json.dumps(json_form(value), ensure_ascii=False))


def print_json(value: Value) -> None:
    """Write a JSON document for people and programs."""
    sys.stdout.buffer.write(_encoded(json.dumps(json_form(value), ensure_ascii=False, indent=2)))


def tell(answer: Value, line: str, *, as_json: bool) -> None:
    """Write an answer as JSON, or what it says as a line for people."""
    if as_json:
        print_json(answer)
    else:
        click.echo(line)


def _encoded(text: str) -> bytes:
    """Return the text as UTF-8; bytes of paths that are not UTF-8 become JSON escapes, which Python spells alike."""
    return text.encode("utf-8", "backslashreplace") + b"\n"


def allow_descriptors() -> None:
    """Raise the limit on open descriptors to this user's maximum: each connection and each partition needs one.

    The usual limit of 1,024 is meant for programs that call `select`; the hard limit is the administrator's.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # On failure the limit stays.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def say_ready(address: Address) -> None:
    """Write the ready line, and exempt all objects so far from garbage collections.

    These objects live as long as the process.  A collection over a node's 50,000 objects takes 30 ms in which no
    request is answered, and many requests that Python answers would cause many collections.
    """
    gc.collect()
    gc.freeze()
    sys.stdout.write(f"ready {address}\n")
    sys.stdout.flush()


def note(line: str) -> None:
    """Write a line for people to standard error; ignore a failure to write."""
    with contextlib.suppress(OSError):
        click.echo(printable(line), err=True)
    flush_or_drop(sys.stderr)


def part_text(part: Value) -> str:
    """Return a part of a table in words: `{"shard"}`, or `{"start", "end"}` of a range."""
    match part:
        case {"start": bytes(start), "end": None | bytes() as end}:
            return f"the keys from {shown(start)}" + ("" if end is None else f" to before {shown(end)}")
        case {"shard": int(number)}:
            return f"shard {number}"
    return plain(part)


@final
class CommandOutput:
    """The output of values: `--out FILE`, or else standard output.  The file is created at the first write."""

    def __init__(self, file: Path | None, *, hexadecimal: bool) -> None:
        self._file = file
        self._hexadecimal = hexadecimal
        self._stream: BinaryIO | None = None if file is not None else sys.stdout.buffer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None and self._file is not None:
            self._stream.close()

    @property
    def for_people(self) -> bool:
        """True if standard output is a terminal and gets the values."""
        return self._file is None and sys.stdout.isatty()

    def form(self, data: bytes) -> bytes:
        """Return a key or value in the form for output."""
        return data.hex().encode() if self._hexadecimal else data

    def record(self, key: bytes, value: bytes | None) -> dict[str, Value]:
        """Return a key and its value in the form for JSON; a missing value is null."""
        pair: dict[str, bytes | None] = {"key": key, "value": value}
        if self._hexadecimal:
            return {name: data if data is None else data.hex() for name, data in pair.items()}
        return {**pair}

    def write(self, data: bytes) -> None:
        """Write these bytes as they are."""
        if self._stream is None:
            assert self._file is not None
            self._stream = self._file.open("wb")
        self._stream.write(data)
