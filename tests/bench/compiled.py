"""Programs compiled on first use, and again after changes of their source: yardsticks in C, and bindings of peers."""

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

ROOT = Path(__file__).parents[2]
BUILD_DIRECTORY = ROOT / "build" / "bench"
COMPILER = [*(sysconfig.get_config_var("CC") or "cc").split(), "-O2"]
INCLUDE = ROOT / "src_ext"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "rror" in line), "it failed")
        raise ImportError(f"{' '.join(command[:4])} …: {reason.strip().replace(f'{ROOT}/', '')}")


def _is_older(target: Path, *sources: Path) -> bool:
    target.parent.mkdir(parents=True, exist_ok=True)
    return not target.exists() or target.stat().st_mtime < max(source.stat().st_mtime for source in sources)


@cache
def from_c(source: Path, *flags: str) -> Path:
    target = BUILD_DIRECTORY / source.stem
    if _is_older(target, source):
        _run(*COMPILER, "-Wall", "-Wextra", *flags, str(source), "-o", str(target))
    return target


@cache
def from_cython(source: Path, *flags: str) -> ModuleType:
    """Compile and import a module. Raises ImportError that names the missing part."""
    target = BUILD_DIRECTORY / f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    # A change of inlined or extended definitions must cause a rebuild.
    if _is_older(target, source, *INCLUDE.rglob("*.pxd")):
        c_file = str(target.with_name(f"{source.stem}.c"))
        _run(
            sys.executable, "-m", "cython", "-3", "-X", "cdivision=True", "-I", str(INCLUDE), str(source), "-o", c_file
        )
        headers = sysconfig.get_paths()["include"]
        _run(*COMPILER, "-shared", "-fPIC", f"-I{headers}", c_file, "-o", str(target), *flags)
    spec = importlib.util.spec_from_file_location(source.stem, target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
