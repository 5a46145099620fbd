"""Every mutant of the kill table is killed, by what nodes show and not by an exception.

`KILL_STRIDE` says how many of them one run kills: 1 is each, 4 every fourth.  Which ones depends on the text that they
break, so that a change to a module draws anew among its rows; that all are patches of the code is seen in each run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import Malformed
from tests.nightly.mutants.compiled import source_of
from tests.nightly.mutants.mutant import Edit, Mutant
from tests.nightly.mutants.patched import is_a_property, is_compiled, module_of, patched_text
from tests.nightly.mutants.table import MUTANTS
from tests.simulation.scenarios import SCENARIOS

LEAST = 12
STRIDE = int(os.environ.get("KILL_STRIDE", "4"))


def source(module):
    """The text of a module of the package."""
    return source_of(module).read_text()


def test_there_are_enough():
    """At least twelve, each with a name of its own and an aim that exists."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= LEAST
    for mutant in MUTANTS:
        assert mutant.aims
        assert all(aim in SCENARIOS or aim.isdigit() or Path(aim.partition("::")[0]).exists() for aim in mutant.aims), (
            mutant.name
        )


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_a_patch_of_the_code_as_it_is(mutant):
    """What it replaces stands there once, and what comes of it is Python, or is built when it is to be killed."""
    module = module_of(mutant)
    text = source(module)
    patched = patched_text(mutant, text)
    assert patched != text
    if not is_compiled(mutant):
        compile(patched, module, "exec")


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("gossipkv.gossip.tree.branch:Branch.apply", "no such line"),
        ("gossipkv.gossip.tree.branch:Branch.apply", "return None"),  # More than once.
        ("gossipkv.gossip.tree.branch:Branch.no_such_method", "return None"),
        ("gossipkv.node._published:PublishedTable.end_get", "no such line"),
        ("gossipkv.node._published:PublishedTable.end_get", "count_refused(version, lookup.by_name)"),  # Twice.
        ("gossipkv.node._published:PublishedTable.no_such_method", "return ANSWERED"),
    ],
)
def test_a_place_that_is_not_there_is_seen(place, line):
    """A line that stands elsewhere, or more than once, is not patched in silence."""
    mutant = Mutant("lost", (Edit(place, line, "pass"),), (), "")
    with pytest.raises(ValueError, match=r"stands \d times|there is no"):
        patched_text(mutant, source(module_of(mutant)))


def drawn(stride):
    """The mutants that a run kills."""
    texts = {module_of(mutant): source(module_of(mutant)) for mutant in MUTANTS}
    return [each for each in MUTANTS if zlib.crc32((each.name + texts[module_of(each)]).encode()) % stride == 0]


def test_a_stride_draws_its_share():
    """All of them at 1, and about a fourth at 4."""
    assert drawn(1) == list(MUTANTS)
    assert len(MUTANTS) / 8 < len(drawn(4)) < len(MUTANTS) / 2


@pytest.mark.parametrize("mutant", drawn(STRIDE), ids=lambda mutant: mutant.name)
def test_it_is_killed(mutant):
    """One of its aims, all of which are right without it, breaks a promise, or meets the assertion that it names."""
    said = child("-m", "tests.nightly.mutants.patched", mutant.name)
    assert mutant.by in killers(said) | assertions(said), f"survived {list(said)}: {said}"


PROPERTIES = "tests/unit/gossip/tree/test_branch_properties.py"
APPLY = "gossipkv.gossip.tree.branch:Branch.apply"
CHANGES = "changes = self._new_in(delta)"

RAISED = {KeyError: "raise KeyError(delta)", AssertionError: "assert delta is None, delta"}


@pytest.mark.parametrize("aim", [PROPERTIES, "large_branches"])
@pytest.mark.parametrize("error", [KeyError, AssertionError])
def test_what_only_raises_is_not_killed(error, aim):
    """An exception or an assertion in the patched function is told, and kills nothing, whatever the aim."""
    mutant = Mutant("raises", (Edit(APPLY, CHANGES, RAISED[error]),), (aim,), "")
    run = "from tests.nightly.mutants.mutant import Edit, Mutant\nfrom tests.nightly.mutants.patched import main\n"
    run += "main({!r})"
    said = child("-c", run.format(mutant))
    assert killers(said) == set()
    assert error.__name__ in said[aim]["raised"]


def a_property():
    """As a test makes it."""
    assert sum([1, 1]) == 3


@pytest.mark.parametrize(
    ("call", "kills"),
    [
        (a_property, True),
        (lambda: messages.part(messages.RECORD, bytes(1 << 16)), False),  # An assertion, and not of a test.
        (lambda: messages.read_who(b""), False),
        (lambda: {}["no such key"], False),
    ],
)
def test_a_property_is_told_from_what_is_raised(call, kills):
    """It is an assertion that stands in the tests, alone or among others; what else ends a test is not."""
    with pytest.raises((AssertionError, KeyError, Malformed)) as raised:
        call()
    assert is_a_property(raised.value) is kills
    assert is_a_property(ExceptionGroup("several", [KeyError(), raised.value])) is kills


def killers(said):
    """The checkers that spoke."""
    return {checker for found in said.values() for checker in found} - {"raised", "asserted"}


def assertions(said):
    """The assertions that failed, as `Mutant.by` has them."""
    return {f"assertion of {name}" for found in said.values() for name in found.get("asserted", ())}


def child(*command):
    """What a patched process says."""
    ran = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
