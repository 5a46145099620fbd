"""Environments of packages that cannot be beside those of development, or that are too large for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 900


def make(place: Path, *needs: str, extras: tuple[str, ...]) -> str:
    """Install what this package needs, with extras and more, and return the Python of the environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = [need for extra in extras for need in project["optional-dependencies"][extra]]
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    install = [place / "bin" / "pip", "install", "-q", *project["dependencies"], *found, *needs]
    subprocess.run(install, check=True, timeout=PATIENCE_S)
    return str(place / "bin" / "python")


def variables() -> dict[str, str]:
    """Return the variables of a process that imports this tree."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | {
        "PYTHONPATH": str(ROOT)
    }
