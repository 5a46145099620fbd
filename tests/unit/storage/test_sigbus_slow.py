"""Tests over real processes, sockets, threads or time; `test_sigbus.py` has the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from gossipkv.storage import sigbus
from tests.unit.storage.lost_pages import PAGE
from tests.world.sorted_files import build

if TYPE_CHECKING:
    from pathlib import Path

from typing import TYPE_CHECKING

from gossipkv.errors import Corrupt
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.lost_pages import lose_page, pages_of

if TYPE_CHECKING:
    from collections.abc import Callable

from tests.unit.storage.test_sigbus import ASKED, METADATA, RECORDS


@pytest.fixture(autouse=True)
def _outlive() -> None:
    """Install the handler, so that lost maps do not end this process."""
    sigbus.install()


def in_child(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, with common imports and helpers."""
    names = """
        import ctypes, faulthandler, mmap, os, signal, sys
        from gossipkv.storage import sigbus
        from gossipkv.storage.sorted_file import SortedFile
        def touch(path):
            with open(path, "rb") as file:
                pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            os.truncate(path, 0)
            return pages[0]
    """
    command = [sys.executable, "-c", textwrap.dedent(names) + textwrap.dedent(program), *map(str, arguments)]
    # A sanitizer would handle the signal itself.
    environ = os.environ | {"ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:handle_sigbus=0"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environ)


def test_without_the_handler_the_process_ends(tmp_path: Path) -> None:
    """An application that uses the library must install the handler itself."""
    build(tmp_path / "f", RECORDS.items())
    ended = in_child("file = SortedFile(sys.argv[1]); os.truncate(sys.argv[1], 0); file.get(b'long')", tmp_path / "f")
    assert ended.returncode == -signal.SIGBUS


FAULT, SENT = "touch(sys.argv[1])", "os.kill(os.getpid(), signal.SIGBUS)"
ENDS = "end = ctypes.CFUNCTYPE(None, ctypes.c_int)(os._exit)"


@pytest.mark.parametrize(
    ("earlier", "then", "status", "said"),
    [
        ("", FAULT, -signal.SIGBUS, ""),
        ("", SENT, -signal.SIGBUS, ""),
        ("faulthandler.enable()", FAULT, -signal.SIGBUS, "Bus error"),
        ("signal.signal(signal.SIGBUS, signal.SIG_IGN)", FAULT, -signal.SIGBUS, ""),
        ("signal.signal(signal.SIGBUS, signal.SIG_IGN)", SENT, 0, ""),
        (f"{ENDS}; ctypes.CDLL(None).signal(signal.SIGBUS, end)", FAULT, signal.SIGBUS, ""),
        (f"{ENDS}; ctypes.CDLL(None).signal(signal.SIGBUS, end)", SENT, signal.SIGBUS, ""),
    ],
    ids=["fault", "sent", "faulthandler", "fault though ignored", "sent and ignored", "handler", "handler of sent"],
)
def test_what_is_not_ours_is_passed_on(tmp_path: Path, earlier: str, then: str, status: int, said: str) -> None:
    """A fault outside our maps, and a signal without a fault, have their earlier effect."""
    (tmp_path / "f").write_bytes(b"x" * PAGE)
    ended = in_child(f"{earlier}\nsigbus.install()\nsigbus.install()\n{then}", tmp_path / "f")
    assert ended.returncode == status, ended.stderr
    assert said in ended.stderr


def test_a_map_is_ours_until_it_is_closed(tmp_path: Path) -> None:
    """After `close` another map may have the same address, and a fault there is not ours."""
    build(tmp_path / "f", RECORDS.items())
    (tmp_path / "g").write_bytes(bytes((tmp_path / "f").stat().st_size))
    program = "sigbus.install(); SortedFile(sys.argv[1]).close(); touch(sys.argv[2])"
    assert in_child(program, tmp_path / "f", tmp_path / "g").returncode == -signal.SIGBUS


@pytest.fixture
def path(tmp_path: Path, way: str) -> Path:
    """Write a file of some twenty pages, of each compression."""
    made = tmp_path / "f.gkv"
    compression = oracle.NONE if way == "none" else oracle.LZ4
    made.write_bytes(oracle.write(RECORDS.items(), compression=compression, metadata=METADATA))
    return made


@pytest.mark.parametrize("checked", [False, True], ids=["never read", "checked before"])
@ASKED
def test_a_page_that_cannot_be_read_is_damage(
    path: Path, ask: Callable[[SortedFile], object], *, checked: bool
) -> None:
    """For each lost page: all answers are right without it, or the error names it and the file answers no more."""
    met = 0
    for page in pages_of(path):
        with SortedFile(path) as file:
            expected = ask(SortedFile(path.read_bytes()))
            assert not checked or ask(file) == expected
            lose_page(path, page)
            try:
                assert ask(file) == expected
                assert file.lost_at is None
            except Corrupt as error:
                met += 1
                assert (error.file, error.offset // PAGE) == (str(path), page)
                assert "the file was cut short while it was mapped, or its disk failed" in str(error)
                assert file.lost_at == error.offset
                with pytest.raises(Corrupt):
                    file.get(b"absent")
    assert met >= 1
