"""Programs of ours: starting one by this interpreter, speaking over pipes, and describing its end."""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Mapping


T = TypeVar("T")


def command(module: str) -> list[str]:
    """Return the command that runs a module as a program, and imports nothing from the working directory."""
    return [sys.executable, "-P", "-m", module]


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return `environ` with the import path of this process, however this process was started."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return {**environ, "PYTHONPATH": path}


def how_it_ended(status: int | None) -> str:
    """Describe the end of a process from its exit status; below zero it is the signal that killed it."""
    return f"was killed by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"


def order_line(order: object) -> bytes:
    """Return an order of a process to its own child, as one line for `read_order`."""
    return base64.b64encode(pickle.dumps(order)) + b"\n"


def read_order(line: bytes, kind: type[T]) -> T:
    """Return the order in a line, which the starter of this process has written."""
    order = pickle.loads(base64.b64decode(line))  # noqa: S301  # No others can write to this input.
    assert isinstance(order, kind), order
    return order


@final
class ProgramLines:
    """Received bytes, cut into whole lines."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting = b""

    def feed(self, part: bytes) -> list[bytes]:
        """Return the lines that `part` completes, without their ends."""
        *lines, self._waiting = (self._waiting + part).split(b"\n")
        assert b"\n" not in self._waiting, self._waiting
        return lines


def say_json(message: object) -> None:
    """Write one line of JSON to standard output, as `say` does."""
    say(json.dumps(message).encode())


def say(line: bytes) -> None:
    """Write one line to standard output, at once and whole."""
    assert b"\n" not in line, line
    data = line + b"\n"
    while data:
        data = data[os.write(1, data) :]
