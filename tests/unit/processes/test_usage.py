"""The reported usage of a process matches its real usage."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

import pytest

from gossipkv.processes import usage
from gossipkv.processes.usage import peak_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


NAMES = {"cpu_s", "resident_bytes", "peak_bytes", "descriptors", "descriptor_limit", "threads", "started_ms"}


def test_all_is_told_here() -> None:
    """Each value has its name and unit; the peak is the kernel's, and at least the resident size."""
    before, told, after = peak_bytes(), usage.usage(), peak_bytes()
    assert told.keys() == NAMES
    assert before <= told["peak_bytes"] <= after
    assert 1 << 20 < told["resident_bytes"] <= told["peak_bytes"]
    assert told["descriptor_limit"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.parametrize(("size", "expected"), [(7, 7), (0, 2)])
def test_descriptors_on_any_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, expected: int) -> None:
    """The directory's size counts; without one the entries are listed, except the listing's own descriptor."""

    class Directory:
        """A directory of three descriptors."""

        def stat(self) -> os.stat_result:
            return os.stat_result((0, 0, 0, 0, 0, 0, size, 0, 0, 0))

        def iterdir(self) -> Iterator[Path]:
            return iter([tmp_path] * 3)

    monkeypatch.setattr(usage, "OPEN_FILES", Directory())
    assert usage.usage()["descriptors"] == expected


def test_what_a_system_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc the rest is reported."""

    def refuse(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(usage.Path, "read_text", refuse)
    monkeypatch.setattr(usage, "_started_ms", [])
    monkeypatch.setattr(usage.Path, "stat", refuse)
    assert usage.usage().keys() == {"cpu_s", "descriptor_limit"}
