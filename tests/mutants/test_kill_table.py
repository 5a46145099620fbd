"""Every mutant of membership and tree is killed, by what members show and not by an exception."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.patched import patched_text
from tests.mutants.table import MUTANTS
from tests.simulation.scenarios import SCENARIOS

LEAST = 12


def source(module):
    """The text of a module of the package."""
    return Path(importlib.util.find_spec(module).origin).read_text()


def test_there_are_enough():
    """At least twelve, each with a name of its own and an aim that exists."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= LEAST
    for mutant in MUTANTS:
        assert mutant.aims
        assert all(aim in SCENARIOS or aim.isdigit() or Path(aim).exists() for aim in mutant.aims), mutant.name


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_a_patch_of_the_code_as_it_is(mutant):
    """What it replaces stands there once, and what comes of it is Python."""
    text = source(mutant.module)
    compile(patched_text(mutant, text), mutant.module, "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_killed(mutant):
    """One of its aims, all of which are right without it, says that a promise is broken."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.mutants.patched", mutant.name], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    killers = {checker for found in said.values() for checker in found} - {"raised"}
    assert mutant.by in killers, f"survived {list(said)}: {said}"
