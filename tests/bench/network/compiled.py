"""What is compiled on first use, into the build directory: the peers' protocols, and the kernel's floor."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUILD_DIRECTORY = ROOT / "build" / "bench"
# A change in the layout of what they extend, and in what they inline, must not go unseen.
DECLARED = [
    declared for part in ("loadtest", "wire") for declared in (ROOT / "src_ext" / "gossipkv" / part).glob("*.pxd")
]


def _compiler() -> list[str]:
    return [*(sysconfig.get_config_var("CC") or "cc").split(), "-O2"]


def _run(*steps: list[str]) -> None:
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(step[:4])} … failed:\n{done.stderr[-2000:]}")


def _is_older(target: Path, *sources: Path) -> bool:
    return not target.exists() or target.stat().st_mtime < max(source.stat().st_mtime for source in sources)


@cache
def protocols() -> ModuleType:
    """The dialects of `_protocols.pyx`."""
    source = HERE / "_protocols.pyx"
    target = BUILD_DIRECTORY / f"_protocols{sysconfig.get_config_var('EXT_SUFFIX')}"
    if _is_older(target, source, *DECLARED):
        target.parent.mkdir(parents=True, exist_ok=True)
        c_file = target.with_name("_protocols.c")
        headers = sysconfig.get_paths()["include"]
        include = str(ROOT / "src_ext")
        _run(
            [
                sys.executable,
                "-m",
                "cython",
                "-3",
                "-X",
                "cdivision=True",
                "-I",
                include,
                str(source),
                "-o",
                str(c_file),
            ],
            [*_compiler(), "-shared", "-fPIC", f"-I{headers}", str(c_file), "-o", str(target)],
        )
    spec = importlib.util.spec_from_file_location("_protocols", target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def floor() -> Path:
    """The server that answers a constant."""
    source = HERE / "floor.c"
    target = BUILD_DIRECTORY / "floor"
    if _is_older(target, source):
        target.parent.mkdir(parents=True, exist_ok=True)
        _run([*_compiler(), "-Wall", "-Wextra", str(source), "-o", str(target)])
    return target
