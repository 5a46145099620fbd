"""Every mutant of the kill table is killed by observed behaviour, not by an exception."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import Malformed
from tests.nightly.mutants.mutant import Edit, Mutant
from tests.nightly.mutants.patched import is_a_property
from tests.nightly.mutants.table import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_killed(mutant):
    """One of the aims, which all pass without the mutant, reports a broken promise or meets the named assertion."""
    said = child("-m", "tests.nightly.mutants.patched", mutant.name)
    assert mutant.by in killers(said) | assertions(said), f"survived {list(said)}: {said}"


PROPERTIES = "tests/unit/gossip/tree/test_branch_properties.py"
APPLY = "gossipkv.gossip.tree.branch:Branch.apply"
CHANGES = "changes = self._new_in(delta)"

RAISED = {KeyError: "raise KeyError(delta)", AssertionError: "assert delta is None, delta"}


@pytest.mark.parametrize("aim", [PROPERTIES, "large_branches"])
@pytest.mark.parametrize("error", [KeyError, AssertionError])
def test_what_only_raises_is_not_killed(error, aim):
    """An exception or an assertion in the patched function is reported, and kills nothing, for either aim."""
    mutant = Mutant("raises", (Edit(APPLY, CHANGES, RAISED[error]),), (aim,), "")
    run = "from tests.nightly.mutants.mutant import Edit, Mutant\nfrom tests.nightly.mutants.patched import main\n"
    run += "main({!r})"
    said = child("-c", run.format(mutant))
    assert killers(said) == set()
    assert error.__name__ in said[aim]["raised"]


def a_property():
    assert sum([1, 1]) == 3


def an_error_that_does_not_come():
    with pytest.raises(KeyError):
        dict.fromkeys("a")


@pytest.mark.parametrize(
    ("call", "kills"),
    [
        (a_property, True),
        (an_error_that_does_not_come, True),
        (lambda: pytest.fail("too slow"), False),
        (lambda: messages.part(messages.RECORD, bytes(1 << 16)), False),  # The assertion is in the code, not in a test.
        (lambda: messages.read_who(b""), False),
        (lambda: {}["no such key"], False),
    ],
)
def test_a_property_is_told_from_what_is_raised(call, kills):
    """Only an assertion in the tests is a property, alone or in a group; other exceptions are not."""
    with pytest.raises((AssertionError, KeyError, Malformed, pytest.fail.Exception)) as raised:
        call()
    assert is_a_property(raised.value) is kills
    assert is_a_property(BaseExceptionGroup("several", [KeyError(), raised.value])) is kills


def killers(said):
    return {checker for found in said.values() for checker in found} - {"raised", "asserted"}


def assertions(said):
    """Return the failed assertions in the form of `Mutant.by`."""
    return {f"assertion of {name}" for found in said.values() for name in found.get("asserted", ())}


def child(*command):
    ran = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
