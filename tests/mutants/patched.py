"""Runs aims on patched code, in a process of its own: `python -m tests.mutants.patched NAME` prints what was broken.

The patch is laid over the module's text as it is imported; nothing is written anywhere.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import sys
import traceback
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from tests.mutants.table import MUTANTS


class Patching(MetaPathFinder, Loader):
    """Finds one module, and loads it patched."""

    def __init__(self, mutant):
        self.mutant = mutant
        self.is_loaded = False

    def find_spec(self, fullname, path, target=None):
        """Only that module is ours."""
        if fullname != self.mutant.module:
            return None
        found = PathFinder.find_spec(fullname, path)
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=self)

    def create_module(self, spec):
        """The usual one."""
        return

    def exec_module(self, module):
        """Compile the patched text, past any cache."""
        text = patched_text(self.mutant, Path(module.__file__).read_text())
        exec(compile(text, module.__file__, "exec"), module.__dict__)
        self.is_loaded = True


def patched_text(mutant, text):
    """The text of a module with the patch on it."""
    for old, new in ((mutant.old, mutant.new), *mutant.also):
        count = text.count(old)
        if count != 1:
            raise ValueError(f"{mutant.name}: {old!r} stands {count} times in {mutant.module}")
        text = text.replace(old, new)
    return text


def broken(aims):
    """What each aim says is broken, up to the first that says anything; an aim that raises says nothing."""
    swarm = importlib.import_module("gossipkv.testing.swarm")  # Not before the patch is in place.
    scenarios = importlib.import_module("tests.simulation.scenarios").SCENARIOS
    said = {}
    for aim in aims:
        try:
            if aim.endswith(".py"):
                failed = pytest.main(["-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", aim])
                found = {"property": aim} if failed == pytest.ExitCode.TESTS_FAILED else {}
            elif aim.isdigit():
                found = {violation.checker: str(violation) for violation in swarm.run(swarm.Plan(int(aim))).violations}
            else:
                found = scenarios[aim]()
        except Exception:  # noqa: BLE001  # Whatever it is, it kills nothing.
            said[aim] = {"raised": traceback.format_exc(limit=-6)}
            continue
        said[aim] = found
        if found:
            break
    return said


def main():
    """Patch, run, print."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == sys.argv[1])
    patching = Patching(mutant)
    sys.meta_path.insert(0, patching)
    with contextlib.redirect_stdout(sys.stderr):  # Where pytest may talk.
        said = broken(mutant.aims)
    assert patching.is_loaded, f"{mutant.module} was never imported"
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
