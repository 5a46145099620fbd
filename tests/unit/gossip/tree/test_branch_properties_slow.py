"""More seeds of `test_branch_properties.py`."""

from __future__ import annotations

import pytest

from tests.unit.gossip.tree import test_branch_properties as line


@pytest.mark.parametrize("first", range(50, 400, 50))
def test_readers_see_only_what_the_owner_had(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "SEEDS", range(first, first + 50))
    line.test_readers_see_only_what_the_owner_had()


@pytest.mark.parametrize("most_bytes", [line.MOST, 4 * 260])
@pytest.mark.parametrize("first", range(50, 400, 50))
def test_no_bytes_break_what_a_branch_promises(first: int, most_bytes: int) -> None:
    for seed in range(first, first + 50):
        line.test_no_bytes_break_what_a_branch_promises(seed, most_bytes)


@pytest.mark.parametrize("first", range(10, 100, 10))
def test_what_an_owner_may_publish_is_taken_by_everybody(first: int) -> None:
    for seed in range(first, first + 10):
        line.test_what_an_owner_may_publish_is_taken_by_everybody(seed)
