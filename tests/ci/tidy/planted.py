"""Small source trees with a planted fault, to prove that a check sees the fault."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

from tests.ci.tidy.source import Source

if TYPE_CHECKING:
    from pathlib import Path


def plant(root: Path, files: dict[str, str]) -> list[Source]:
    """Write the files below `root`, and return them as sources."""
    found = []
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        found.append(Source(root, path))
    return found
