"""The references of texts and log events are those of the code; `python docs/messages.py` writes them anew."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.ci.tidy.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

GENERATOR = ROOT / "docs" / "messages.py"
PROGRAM = '''
"""A docstring is no text."""
self._log.error("burnt", reason=why)
node.log.info("lit")
self._warnings.say("smoke", line)
math.log("no event")
assert done, "an assertion is no text"
raise Gone(f"{name}: no fire in {rooms[0].where('oven')!r}; light {one if a else 'the stove'}", "code")
style = "bold red"
'''


@pytest.mark.parametrize("name", ["messages.md", "log.md"])
def test_the_reference_is_that_of_the_code(name: str, made: Path) -> None:
    expected = (made / name).read_text(encoding="utf-8")
    kept = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert kept == expected, "run `python docs/messages.py`, and read the difference as a user would"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("reference")
    subprocess.run([sys.executable, "-W", "error", GENERATOR, directory], check=True, cwd=ROOT)
    return directory


def test_texts_and_events_of_any_form_are_seen() -> None:
    """Literals of words count with the class that takes them; docstrings, assertions and styles do not."""
    check = (
        "import ast, sys; from messages import *; found = Texts(ast.parse(sys.stdin.read()))\n"
        "print(found.found, found.events, cython_texts(sys.argv[1]), Page(sys.argv[2]).found, sep='\\n')"
    )
    cython = '''    """No text."""\n    raise Gone(\n        f"{<int>n:,} fires "  # of all\n        "are out")'''
    page = """{# no text #}<p title="All fires">{% if a %}Look at {{ fire.name|e }}{% else %}out{% endif %}</p>"""
    done = subprocess.run(
        [sys.executable, "-c", check, cython, page],
        input=PROGRAM, capture_output=True, text=True, check=True, cwd=GENERATOR.parent,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "[('text', 'no event'), ('Gone', '{name}: no fire in {where}; light {…}'), ('Gone', 'the stove')]",
        "[('burnt', 'error', ['reason']), ('lit', 'info', []), ('smoke', 'warning', ['reason'])]",
        "[('Gone', '{n} fires are out')]",
        "[('text', 'All fires'), ('text', 'Look at {name}')]",
    ]
