"""The stubs of the clients are those that `make stubs` writes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

STUBS = runpy.run_path(str(Path(__file__).parents[3] / ".ci" / "stubs.py"))["stubs"]()


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.stem)
def test_stub(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == STUBS[path]


def test_methods_are_awaited_by_their_client():
    """Answers of a node are awaited under Trio, and values in plain threads."""
    texts = {path.stem: text for path, text in STUBS.items()}
    said = "def get(self, key: Key, *, version: str | None=None"
    assert f"    async {said}" in texts["awaited"]
    assert f"\n    {said}" in texts["plain"]
    assert "async" not in texts["plain"]
