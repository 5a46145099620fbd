"""Libraries that are loaded before libc, and replace some of its functions."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def preload(source: Path, place: Path, *options: str) -> Path:
    """Compile a library into a directory; return its path for `LD_PRELOAD`."""
    library = place / source.with_suffix(".so").name
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", *options, "-o", library, source, "-ldl"], check=True)
    return library
