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

TESTS = Path(__file__).parents[1]


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


class Properties:
    """Looks at the tests that fail: a property that does not hold says so, anything else has only been raised."""

    def __init__(self):
        self.broken = []
        self.raised = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """The first property ends the run; before it, what was raised may hide one in another test."""
        report = yield
        if report.failed:
            said = self.broken if is_a_property(call.excinfo.value) else self.raised
            said.append(f"{report.nodeid}: {report.longreprtext}")
            if self.broken:
                item.session.shouldstop = "one is enough"
        return report


def is_a_property(error):
    """Whether it is an assertion that a test itself has made, and not something on the way to it."""
    if isinstance(error, BaseExceptionGroup):  # Hypothesis found several.
        return any(map(is_a_property, error.exceptions))
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, AssertionError) and bool(frames) and in_tests(frames[-1])


def in_tests(frame):
    """Whether it runs code of a test."""
    return Path(frame.f_code.co_filename).is_relative_to(TESTS)


def properties(path):
    """What the tests of properties in this file say."""
    said = Properties()
    pytest.main(["-q", "-p", "no:randomly", "-p", "no:cacheprovider", path], plugins=[said])
    if said.broken:
        return {"property": said.broken[0]}
    return {"raised": said.raised[0]} if said.raised else {}


def broken(aims):
    """What each aim says is broken, up to the first that says anything; an aim that raises says nothing."""
    swarm = importlib.import_module("gossipkv.testing.swarm")  # Not before the patch is in place.
    scenarios = importlib.import_module("tests.simulation.scenarios").SCENARIOS
    said = {}
    for aim in aims:
        try:
            if aim.endswith(".py"):
                found = properties(aim)
            elif aim.isdigit():
                found = {violation.checker: str(violation) for violation in swarm.run(swarm.Plan(int(aim))).violations}
            else:
                found = scenarios[aim]()
        except Exception:  # noqa: BLE001  # Whatever it is, it kills nothing.
            said[aim] = {"raised": traceback.format_exc(limit=-6)}
            continue
        said[aim] = found
        if found.keys() - {"raised"}:
            break
    return said


def main(mutant):
    """Patch, run, print."""
    patching = Patching(mutant)
    sys.meta_path.insert(0, patching)
    with contextlib.redirect_stdout(sys.stderr):  # Where pytest may talk.
        said = broken(mutant.aims)
    assert patching.is_loaded, f"{mutant.module} was never imported"
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main(next(mutant for mutant in MUTANTS if mutant.name == sys.argv[1]))
