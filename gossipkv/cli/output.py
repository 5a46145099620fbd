"""How results leave a command: bytes as they are, as hexadecimal or as JSON, to standard output or a file."""

from __future__ import annotations

import contextlib
import gc
import json
import resource
import sys
from typing import TYPE_CHECKING, BinaryIO, Self, final

import click

from gossipkv.processes.streams import flush_or_drop
from gossipkv.status.words import printable
from gossipkv.wire.json_form import json_form

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from gossipkv.address import Address
    from gossipkv.wire.rpc import Value


def json_line(value: Value) -> bytes:
    """One JSON value and a line feed."""
    return _encoded(json.dumps(json_form(value), ensure_ascii=False))


def print_json(value: Value) -> None:
    """A JSON document for people and programs."""
    sys.stdout.buffer.write(_encoded(json.dumps(json_form(value), ensure_ascii=False, indent=2)))


def _encoded(text: str) -> bytes:
    """JSON as UTF-8; what that cannot say (a path may be any bytes) as JSON's own escape, which Python spells alike."""
    return text.encode("utf-8", "backslashreplace") + b"\n"


def allow_descriptors() -> None:
    """As many as this user may have: a connection takes one, and so does a partition of a node.

    The usual limit of 1,024 is there for programs that call `select`; the hard one is the administrator's.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # Then it is what it was.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def say_ready(address: Address) -> None:
    """Tell whoever started this process where it listens, and leave what it is made of out of garbage collections.

    That lives as long as the process.  To look through a node's 50,000 objects takes 30 ms in which nobody is answered,
    and whoever sends enough requests that Python answers has it done again and again.
    """
    gc.collect()
    gc.freeze()
    sys.stdout.write(f"ready {address}\n")
    sys.stdout.flush()


def note(line: str) -> None:
    """A line for people, on standard error; one that cannot be written is no error."""
    with contextlib.suppress(OSError):
        click.echo(printable(line), err=True)
    flush_or_drop(sys.stderr)


@final
class CommandOutput:
    """Where values go: `--out FILE`, else standard output.  The file is made when there is something to write."""

    def __init__(self, file: Path | None, *, hexadecimal: bool = False) -> None:
        self._file = file
        self._hexadecimal = hexadecimal
        self._stream: BinaryIO | None = None if file is not None else sys.stdout.buffer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None and self._file is not None:
            self._stream.close()

    @property
    def for_people(self) -> bool:
        """Whether a person reads this on a terminal."""
        return self._file is None and sys.stdout.isatty()

    def form(self, data: bytes) -> bytes:
        """A key or value as it is to be written."""
        return data.hex().encode() if self._hexadecimal else data

    def record(self, key: bytes, value: bytes | None) -> dict[str, Value]:
        """A key and its value as they are to stand in JSON; no value is null."""
        told: dict[str, bytes | None] = {"key": key, "value": value}
        if self._hexadecimal:
            return {name: data if data is None else data.hex() for name, data in told.items()}
        return {**told}

    def write(self, data: bytes) -> None:
        """These bytes, as they are."""
        if self._stream is None:
            assert self._file is not None
            self._stream = self._file.open("wb")
        self._stream.write(data)
