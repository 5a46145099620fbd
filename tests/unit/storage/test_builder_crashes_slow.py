"""Tests that cost seconds; `test_builder_crashes.py` has the others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.world import sorted_files
from tests.world.faulty_files import Action, Crash, Fault, FaultyFiles

if TYPE_CHECKING:
    from pathlib import Path


from tests.unit.storage.test_builder_crashes import KINDS, OLD, Unsynced, build, content, operations, records


@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
def test_a_kill_at_every_operation(tmp_path: Path, action: Action) -> None:
    """The file is the old or the new one, and the next build cleans up."""
    new = sorted(dict(records()).items())
    path = tmp_path / "a.gkv"
    expected = operations(path)
    assert min(expected.values()) > 0
    assert expected["create"] >= 3, "runs were put aside"
    struck: Counter[str] = Counter()
    seen: Counter[bool] = Counter()
    for at in range(expected.total()):
        sorted_files.build(path, OLD, files=Unsynced())
        faulty = FaultyFiles(Unsynced(), Fault(at, action, kinds=KINDS))
        with pytest.raises(Crash):
            build(path, faulty)
        struck[faulty.struck[0].split()[0]] += 1
        found = content(path)
        assert found in (OLD, new)
        seen[found == new] += 1
        sorted_files.build(path, OLD, files=Unsynced())
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.gkv"]
    assert struck == expected
    assert min(seen[False], seen[True]) > 0
