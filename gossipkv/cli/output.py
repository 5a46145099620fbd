"""How results leave a command: bytes as they are, as hexadecimal or as JSON, to standard output or a file.

JSON has no bytes: they are a string if they are UTF-8, else `{"base64": "…"}`.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, BinaryIO, Self, final

import click

from gossipkv import quantity

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from rich.console import Console, RenderableType

    from gossipkv.wire.rpc import Value


def json_form(value: Value) -> Value:
    """`value` with its bytes in a form that JSON has."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {str(name): json_form(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_form(item) for item in value]
    return value


def json_line(value: Value) -> bytes:
    """One JSON value and a line feed."""
    return json.dumps(json_form(value), ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def print_json(value: Value) -> None:
    """A JSON document for people and programs."""
    text = json.dumps(json_form(value), ensure_ascii=False, indent=2)
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass") + b"\n")


def note(line: str) -> None:
    """A line for people, on standard error."""
    click.echo(line, err=True)


def shown(key: bytes) -> str:
    """A key in a message."""
    return repr(key)[1:] if len(key) <= 60 else f"{repr(key[:57])[1:]}..."  # noqa: PLR2004  # Fits a line.


def plain(value: Value) -> str:
    """Any value in words; `-` for none."""
    if isinstance(value, bytes):
        return shown(value)
    return "-" if value is None else str(value)


def size_text(size_bytes: int) -> str:
    """A size for people, to one decimal, in the units of the settings."""
    size = float(size_bytes)
    for unit in quantity.SIZE:
        if size < 1000 or unit == "TiB":  # noqa: PLR2004  # Four digits are one too many to read.
            break
        size /= 1024
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def draw(renderable: RenderableType) -> None:
    """Put a table or text on standard output; without the padding where nobody sees it."""
    screen = console()
    with screen.capture() as captured:
        screen.print(renderable)
    lines = captured.get().splitlines()
    click.echo("\n".join(lines if screen.is_terminal else (line.rstrip() for line in lines)), color=True)


def console(*, stderr: bool = False) -> Console:
    """Where tables and progress are drawn; a pipe or a file gets them plain, and wide enough not to be folded."""
    from rich.console import Console  # noqa: PLC0415  # 60 ms that plain reads should not pay.

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else 160)


@final
class Output:
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

    def write(self, data: bytes) -> None:
        """These bytes, as they are."""
        if self._stream is None:
            assert self._file is not None
            self._stream = self._file.open("wb")
        self._stream.write(data)
