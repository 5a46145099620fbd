"""The rows of the kill table fit the current code; the nightly run kills the mutants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly.mutants.compiled import source_of
from tests.nightly.mutants.mutant import Edit, Mutant
from tests.nightly.mutants.patched import is_compiled, module_of, patched_text
from tests.nightly.mutants.table import BY_PROMISE, MUTANTS
from tests.simulation.scenarios import SCENARIOS

MIN_ROWS = 10


def source(module):
    return source_of(module).read_text()


@pytest.mark.parametrize("promise", [f"P{number}" for number in range(1, 11)])
def test_each_promise_has_enough(promise):
    assert len(BY_PROMISE[promise]) >= MIN_ROWS


def test_each_has_a_name_and_an_aim():
    """No two rows share a name, and every aim exists."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert mutant.aims
        assert all(aim in SCENARIOS or aim.isdigit() or is_a_test(aim) for aim in mutant.aims), mutant.name


def is_a_test(aim):
    """True if the file of the aim exists and has the function that the aim names."""
    path, _, function = aim.partition("::")
    return Path(path).exists() and f"def {function.partition('[')[0]}" in Path(path).read_text()


def test_each_is_a_patch_of_the_code_as_it_is():
    """The replaced line occurs once, and the patched module is valid Python, unless it is Cython."""
    for mutant in MUTANTS:
        module = module_of(mutant)
        text = source(module)
        patched = patched_text(mutant, text)
        assert patched != text, mutant.name
        if not is_compiled(mutant):
            compile(patched, module, "exec")


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("gossipkv.gossip.tree.branch:Branch.apply", "no such line"),
        ("gossipkv.gossip.tree.branch:Branch.apply", "return None"),  # The line occurs more than once.
        ("gossipkv.gossip.tree.branch:Branch.no_such_method", "return None"),
        ("gossipkv.serving.published._table:PublishedTable.end_get", "no such line"),
        (
            "gossipkv.serving.published._table:PublishedTable.end_get",
            "count_refused(version, lookup.by_name)",
        ),  # The line occurs twice.
        ("gossipkv.serving.published._table:PublishedTable.no_such_method", "return ANSWERED"),
    ],
)
def test_a_place_that_is_not_there_is_seen(place, line):
    """A line that is missing or occurs more than once is an error."""
    mutant = Mutant("lost", (Edit(place, line, "pass"),), (), "")
    with pytest.raises(ValueError, match=r"stands \d times|there is no"):
        patched_text(mutant, source(module_of(mutant)))
