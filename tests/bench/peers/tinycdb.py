"""tinycdb: a constant hash file, the smallest thing that answers a get from a map.

PyPI has no binding that builds on Python 3, so one of a few lines (`_tinycdb.pyx`) is compiled on first use into the
build directory, against Debian's libcdb.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.peers.base import Engine

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Self

    from tests.bench.data import Record

SOURCE = Path(__file__).with_name("_tinycdb.pyx")
BUILD_DIRECTORY = Path(__file__).parents[3] / "build" / "bench"


def _compile(target: Path) -> None:
    """From .pyx to a shared object, with the compiler that built Python's own extensions."""
    target.parent.mkdir(parents=True, exist_ok=True)
    c_file = target.with_name("_tinycdb.c")
    headers = sysconfig.get_paths()["include"]
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    steps = (
        [sys.executable, "-m", "cython", "-3", str(SOURCE), "-o", str(c_file)],
        [*compiler, "-O3", "-shared", "-fPIC", f"-I{headers}", str(c_file), "-o", str(target), "-lcdb"],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = next((line for line in done.stderr.splitlines() if "rror" in line), "it failed")
            raise ImportError(f"{' '.join(step[:3])}: {reason.strip()}")


@cache
def _binding() -> ModuleType:
    target = BUILD_DIRECTORY / f"_tinycdb{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not target.exists() or target.stat().st_mtime < SOURCE.stat().st_mtime:
        _compile(target)
    spec = importlib.util.spec_from_file_location("_tinycdb", target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TinyCDB(Engine):
    """Hash tables behind the records, no order, no checksum."""

    name = "tinycdb"
    settings = "Debian's libcdb behind a Cython binding of one call; its builds neither sort nor sync, so no goal there"
    batched = False
    ordered = False

    def __init__(self, path: Path) -> None:
        self._reader = _binding().Reader(str(path))
        self.get = self._reader.get

    @classmethod
    def missing(cls) -> str | None:
        try:
            _binding()
        except ImportError as error:
            return f"apt install libcdb-dev, pip install cython, and a C compiler ({error})"
        return None

    @classmethod
    def build(cls, path: Path, records: list[Record]) -> None:
        _binding().build(str(path), records)

    @classmethod
    def open(cls, path: Path, records: list[Record]) -> Self:
        del records
        return cls(path)

    def close(self) -> None:
        del self.get
        self._reader.close()
