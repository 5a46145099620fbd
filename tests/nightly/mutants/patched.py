"""Run aims on patched code in a separate process: `python -m tests.nightly.mutants.patched NAME` prints what broke.

The patch replaces the module's text during the import; a patched extension is built elsewhere. Nothing is written in
this tree.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import json
import sys
import tempfile
import traceback
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from tests.nightly.mutants import compiled
from tests.nightly.mutants.compiled import source_of
from tests.nightly.mutants.table import MUTANTS
from tests.tiers import TIERS

TESTS = Path(__file__).parents[2]


class Patching(MetaPathFinder, Loader):
    """Finds one module, and loads another text in its place, or the extension that was built of that text."""

    def __init__(self, module, text, built=None):
        self.module = module
        self.text = text
        self.built = built
        self.is_loaded = False

    def find_spec(self, fullname, path, target=None):
        if fullname != self.module:
            return None
        if self.built is not None:
            self.is_loaded = True
            return importlib.util.spec_from_file_location(fullname, self.built)
        found = PathFinder.find_spec(fullname, path)
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=self)

    def create_module(self, spec):
        return

    def exec_module(self, module):
        exec(compile(self.text, module.__file__, "exec"), module.__dict__)
        self.is_loaded = True


def module_of(mutant):
    (module,) = {edit.module for edit in mutant.edits}
    return module


def is_compiled(mutant):
    return source_of(module_of(mutant)).suffix == ".pyx"


def patched_text(mutant, text):
    """Return the text of the module with the mutant's edits.

    Raises:
        ValueError: A place does not exist, or its line does not occur there exactly once.
    """
    lines = text.splitlines(keepends=True)
    for edit in mutant.edits:
        names = edit.place.partition(":")[2].split(".")
        begin, end = compiled.span(text, names) if is_compiled(mutant) else span(ast.parse(text), names)
        found = [at for at in range(begin, end) if lines[at].strip() == edit.line]
        if len(found) != 1:
            raise ValueError(f"{mutant.name}: {edit.line!r} stands {len(found)} times in {edit.place}")
        (at,) = found
        lines[at] = lines[at].replace(edit.line, edit.instead)
    return "".join(lines)


def span(node, names):
    """Return the lines, from zero, of the definition or table of that qualified name below a syntax node."""
    for name in names:
        inner = [child for child in node.body if name in defined(child)]
        if not inner:
            raise ValueError(f"there is no {'.'.join(names)}")
        node = inner[-1]
    return node.lineno - 1, node.end_lineno


def defined(statement):
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
    return set()


class Properties:
    """A plugin that separates failed tests into violated properties and mere exceptions."""

    def __init__(self):
        self.broken = []
        self.raised = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """End the run at the first property; until then, an exception may hide a property in another test."""
        report = yield
        if report.failed:
            told = f"{report.nodeid}: {report.longreprtext}"
            if is_a_property(call.excinfo.value):
                self.broken.append({"property": told})
            else:
                self.raised.append({"raised": told, "asserted": asserted(call.excinfo.value)})
            if self.broken:
                item.session.shouldstop = "one is enough"
        return report


def is_a_property(error):
    """True if a test itself made the assertion, or expected an error that did not come."""
    if isinstance(error, BaseExceptionGroup):  # Hypothesis found several errors.
        return any(map(is_a_property, error.exceptions))
    if isinstance(error, pytest.fail.Exception):
        return str(error).startswith("DID NOT RAISE")
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, AssertionError) and bool(frames) and in_tests(frames[-1])


def asserted(error):
    """Return the owners of the failed assertions, alone or in a group, as a mutant names them."""
    if isinstance(error, BaseExceptionGroup):
        return sorted({name for one in error.exceptions for name in asserted(one)})
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [frames[-1].f_code.co_qualname] if isinstance(error, AssertionError) else []


def in_tests(frame):
    return Path(frame.f_code.co_filename).is_relative_to(TESTS)


def properties(path):
    """Return the report of the property tests in this file and in its slow and night siblings."""
    said = Properties()
    others = [path.removesuffix(".py") + f"_{tier}.py" for tier in TIERS]
    paths = [path, *(other for other in others if Path(other).exists())]
    # Options of the project name a plugin that stays out: the order of tests is theirs.
    options = ["-o", "addopts=--import-mode=importlib", "-p", "no:randomly", "-p", "no:cacheprovider"]
    quiet = ["-q", *options, "--hypothesis-profile=planted"]
    pytest.main([*quiet, *paths], plugins=[said])
    return next(iter(said.broken + said.raised), {})


def broken(aims):
    """Return each aim's report, up to the first report of a violation; an aim that raises is reported as raised."""
    swarm = importlib.import_module("tests.world.gossip.swarm")  # The patch must be in place before this import.
    scenarios = importlib.import_module("tests.simulation.scenarios").SCENARIOS
    said = {}
    for aim in aims:
        try:
            if aim.partition("::")[0].endswith(".py"):
                found = properties(aim)
            elif aim.isdigit():
                found = {
                    violation.checker: str(violation) for violation in swarm.run(swarm.SwarmPlan(int(aim))).violations
                }
            else:
                found = scenarios[aim]()
        except Exception as error:  # noqa: BLE001  # Whatever it is, it kills nothing but what names it.
            said[aim] = {"raised": traceback.format_exc(limit=-6), "asserted": asserted(error)}
            continue
        said[aim] = found
        if found.keys() - {"raised", "asserted"}:
            break
    return said


def main(mutant):
    # pytest may write to standard error.
    with tempfile.TemporaryDirectory() as aside, contextlib.redirect_stdout(sys.stderr):
        module = module_of(mutant)
        text = patched_text(mutant, source_of(module).read_text())
        built = compiled.build(module, text, Path(aside)) if is_compiled(mutant) else None
        patching = Patching(compiled.extension_of(module) if built is not None else module, text, built)
        if built is not None:
            # The package puts its own finder for extensions first, so it is imported before the patch.
            importlib.import_module("gossipkv")
        sys.meta_path.insert(0, patching)
        said = broken(mutant.aims)
    assert patching.is_loaded, f"{module_of(mutant)} was never imported"
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main(next(mutant for mutant in MUTANTS if mutant.name == sys.argv[1]))
