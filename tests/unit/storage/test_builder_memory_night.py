"""A build stays within its memory budget."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from gossipkv.storage.sorted_file import SortedFile
from tests.unit.storage import memory_of_build

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="VmHWM is Linux's")

MIB = 1 << 20


@dataclass(frozen=True)
class Build:
    budget: int
    records: int
    value_bytes: int
    compression: str = "none"
    files: int = 1


BUILDS = {
    "1 KiB values": Build(16 * MIB, 160_000, 1024),
    "1 KiB values, lz4, many files": Build(16 * MIB, 160_000, 1024, "lz4", 300),
    "1 MiB values": Build(16 * MIB, 160, MIB),
    "4 MiB values": Build(16 * MIB, 40, 4 * MIB),
    "tiny records": Build(16 * MIB, 2_500_000, 1),  # Some 60 bytes each during the sort.
    "tiny records, least memory": Build(8 * MIB, 2_500_000, 1),
}


@pytest.mark.parametrize("name", BUILDS)
def test_peak_within_the_budget(tmp_path: Path, name: str) -> None:
    build = BUILDS[name]
    module = [sys.executable, "-m", memory_of_build.__name__]
    told_of = (tmp_path, build.budget, build.records, build.value_bytes, build.compression, build.files)
    arguments = [str(argument) for argument in told_of]
    done = subprocess.run([*module, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    with SortedFile(tmp_path / f"{build.files - 1}.gkv") as file:
        assert len(file) == told["records"] == build.records - 1
        assert file.describe()["value_bytes"] == (build.records - 1) * build.value_bytes
    used = told["after"] - told["before"]
    assert 0 < used <= build.budget, f"{used / MIB:.1f} MiB of {build.budget / MIB:.0f} MiB"
