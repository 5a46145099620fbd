"""Mutants of how a build orders its records: what is taken as it lies."""

from __future__ import annotations

from tests.nightly.mutants.mutant import planted

SORTER = "gossipkv.storage._record_sorter"
TESTS = ("tests/unit/storage/test_record_sorter.py",)

MUTANTS_OF_SORTING = (
    planted(
        "a lower key counts as one in order",
        f"{SORTER}:follows",
        "return compare_keys(at + RECORD_HEADER_SIZE, <Py_ssize_t> load32(at + 4), key, size) <= 0",
        "return True",
        *TESTS,
    ),
    planted(
        "a lower group counts as one in order", f"{SORTER}:follows", "return load32(at) < group", "return True", *TESTS
    ),
    planted(
        "what came in order is lost when the first record is out of order",
        f"{SORTER}:begin_items",
        "self.items[i].place = place",
        "self.items[i].place = 0",
        *TESTS,
    ),
)
