"""The last records of a sort stay in memory if there is room."""

from __future__ import annotations

from tests.unit.storage.test_record_sorter import expected, sort


def test_the_last_records_stay_in_memory() -> None:
    """They are merged from memory if the parts of the runs fit beside them; else they become a run."""
    memory_bytes = 4 << 20
    values = [b"%07d" % number * 1000 for number in range(1500)]  # 10 MB: two runs, and a rest of half the memory.
    records = [(b"%04d" % (number * 7 % 1000), value, 0) for number, value in enumerate(values)]
    found = sort(records, memory_bytes)
    assert found.images == expected(records)
    assert found.scratches == 2
    records += records[:270]  # The rest nearly fills the memory.
    found = sort(records, memory_bytes)
    assert found.images == expected(records)
    assert found.scratches == 3
