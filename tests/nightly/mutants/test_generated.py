"""Generated mutations: each operator makes its change, survivors are reported, and the nightly run works."""

from __future__ import annotations

import os
from pathlib import Path

from tests.nightly.mutants.generated import changed, mutations, report, survivors

PATH = Path("gossipkv/client/patience.py")


def test_each_operator(tmp_path):
    """A single small function meets all operators."""
    path = tmp_path / "module.py"
    path.write_text("def f(a, b):\n    if a < b and b:\n        g()\n    return 7\n")
    bodies = {mutation.change: mutation.text for mutation in mutations(path)}
    assert "if not (a < b and b):" in bodies["negated condition"]
    assert "if a <= b and b:" in bodies["other comparison"]
    assert "if a < b or b:" in bodies["and for or"]
    assert "        None\n" in bodies["dropped call"]
    assert "return 8" in bodies["off by one"]
    assert bodies["early return"] == "def f(a, b):\n    return"


def test_a_survivor_is_reported(tmp_path):
    """A test of one answer kills the mutations that change the answer; all other mutations survive."""
    test = tmp_path / "test_patience.py"
    test.write_text("from gossipkv.client.patience import pause_s\ndef test_it(): assert pause_s(None, 0, 1) is None\n")
    ran, alive = survivors({PATH: [test]}, 60, seed=0)
    assert ran > len(alive)
    assert {mutation.change for mutation in alive} == {"early return", "off by one", "other comparison"}
    assert f"{PATH}:{alive[0].line}: {alive[0].change}: " in str(alive[0])


def test_files_that_changed(record_property):
    """The report of the night lists the survivors of the last day's changes."""
    for line in report(changed(), float(os.environ.get("MUTATION_SECONDS", "60"))):
        record_property("measured", line)
