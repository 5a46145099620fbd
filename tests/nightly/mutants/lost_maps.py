"""Mutants of what is read from mapped files: whether, and when, a reader looks that the file is whole."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted

MUTANTS_OF_LOST_MAPS = (
    planted(
        "a get does not look whether its file is whole",
        "gossipkv.serving._published:PublishedTable.end_get",
        "if not is_whole(<SortedFile>lookup.file):",
        "if False:",
        "tests/unit/serving/test_lost_maps.py",
    ),
    Mutant(
        "a get looks whether its file is whole before it copies",
        (
            Edit(
                "gossipkv.serving._published:PublishedTable.end_get",
                "if found < 0:",
                "if found < 0 or not is_whole(<SortedFile>lookup.file):",
            ),
            Edit(
                "gossipkv.serving._published:PublishedTable.end_get",
                "if not is_whole(<SortedFile>lookup.file):",
                "if False:",
            ),
        ),
        ("tests/unit/serving/test_lost_maps.py",),
        "property",
    ),
    planted(
        "a get_many does not look whether its files are whole",
        "gossipkv.serving._batches:read_value",
        "if not is_whole(<SortedFile>target.file):",
        "if False:",
        "tests/unit/serving/test_lost_maps.py",
    ),
    planted(
        "a scan does not look whether its files are whole",
        "gossipkv.serving._scan_page:page_run",
        "return result if all_whole(page) else PAGE_DAMAGED",
        "return result",
        "tests/unit/serving/test_lost_maps.py",
    ),
    planted(
        "a lookup in Python does not look whether its file is whole",
        "gossipkv.storage._sorted_file:SortedFile.get",
        "if is_whole(self):",
        "if True:",
        "tests/unit/storage/test_sigbus.py",
    ),
    planted(
        "what was lost in its map is not opened anew",
        "gossipkv.dataset.lifecycle.copies:Copies.damaged",
        "if version is not None and error.file in version.lost_names:",
        "if False:",
        "tests/unit/dataset/test_lost_maps.py",
    ),
)
