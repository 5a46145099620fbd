"""The pages on architecture and promises agree with the code, and the checks find disagreements."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

import pytest

from tests.ci.tidy import architecture
from tests.ci.tidy.planted import plant
from tests.ci.tidy.source import ROOT, sources

if TYPE_CHECKING:
    from pathlib import Path

PROMISES = (ROOT / "docs" / "development" / "promises.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "development" / "architecture.md").read_text(encoding="utf-8")
DRAWING_COLUMNS = 100  # The page is read in terminals and beside code.
MAX_WORDS = 2400
MIN_STEPS = 4
WALKS = (
    "A dataset get",
    "A forwarded get",
    "A table put",
    "A table put in the loop",
    "A table get in the loop",
    "A table get in Python, with a token",
    "A range split",
    "A move",
    "A METADATA transaction",
    "A version from source to ACTIVE",
    "A datagram to a watcher",
    "A verdict",
)
ROOM_LINE = re.compile(r"^    (\w+(?:\.py|/)) ", re.MULTILINE)
(TREE,) = architecture.FENCE.findall(architecture.section(PAGE, "The tree"))


def test_the_floors_are_those_that_imports_obey() -> None:
    """Every part of the package is drawn on its floor of the import-linter contract."""
    assert architecture.floors(TREE) == architecture.built(ROOT)
    parts = {path.stem for path in (ROOT / "gossipkv").iterdir() if path.suffix in {"", ".py"}}
    assert {*chain(*architecture.built(ROOT))} == parts - {"__init__", "__pycache__", "blocking"}


def test_every_package_has_its_line() -> None:
    """The tree lists exactly the packages and the modules beside them."""
    assert architecture.listed_tree(TREE) - {"gossipkv/"} == architecture.real_tree(ROOT / "gossipkv") - {"gossipkv/"}


def test_every_definition_is_where_the_page_says() -> None:
    assert len(architecture.DEFINITION.findall(PAGE)) > 100
    assert architecture.check_definitions(PAGE, ROOT) == []


def test_each_walk_has_steps() -> None:
    """Every line of a walk's list begins with a step, and the page has exactly these walks."""
    walks = architecture.section(PAGE, "Walks").split("\n### ")[1:]
    assert tuple(walk.splitlines()[0] for walk in walks) == WALKS
    for walk in walks:
        lines = re.findall(r"^\d+\. (.*)", walk, re.MULTILINE)
        assert len(lines) >= MIN_STEPS, walk
        assert all(architecture.DEFINITION.match(line.lstrip("*")) for line in lines), walk


def test_the_page_is_short() -> None:
    assert len(PAGE.split()) <= MAX_WORDS


def test_drawings_fit_a_terminal() -> None:
    wide = [line for drawing in architecture.FENCE.findall(PAGE) for line in drawing.splitlines()]
    assert [line for line in wide if len(line) > DRAWING_COLUMNS] == []


def test_every_test_of_a_promise_exists() -> None:
    assert architecture.check_tests(PROMISES, ROOT) == []


@pytest.mark.parametrize("number", range(1, 11))
def test_every_promise_has_tests_or_says_that_it_has_none(number: int) -> None:
    """P1 to P10 each have a row, a section, and tests, unless the section says that none exist yet."""
    assert f"\n| P{number} | " in PROMISES
    (part,) = re.findall(rf"^## P{number}: .*?(?=^## )", PROMISES, re.MULTILINE | re.DOTALL)
    assert architecture.TEST.search(part) or "no test yet" in part


def test_what_code_cites_is_defined() -> None:
    """Promises and seeds that code cites by number have a row."""
    cited = architecture.cited(source.text for source in sources(ROOT, "gossipkv", "src_ext"))
    assert "P2" in cited
    assert {name for name in cited if f"\n| {name} | " not in PROMISES} == set()


def test_a_listing_has_floors() -> None:
    """Floors are separated by blank lines and listed from the top; rooms within packages do not count."""
    listing = "top/\n  node/    wires\n    peers/  links\n\n  dataset/ serves\n  log.py   words\n"
    assert architecture.floors(listing) == [{"node"}, {"dataset", "log"}]


def test_a_forgotten_package_is_seen(tmp_path: Path) -> None:
    """A nested listing keeps every package and every module beside them."""
    plant(
        tmp_path, {f"top/{name}": "" for name in ("__init__.py", "a.py", "b/__init__.py", "b/c/__init__.py", "b/d.py")}
    )
    assert architecture.listed_tree("top/\n  a.py  what it is\n  b/    more\n    c/\n") == {
        "top/", "top/a.py", "top/b/", "top/b/c/",
    }  # fmt: skip
    assert architecture.real_tree(tmp_path / "top") == {"top/", "top/a.py", "top/b/", "top/b/c/"}


PYTHON = "MOST: int = 3\n\nclass A:\n    async def f(self):\n        def inner(): pass\n\ndef g(): pass\n"
CYTHON = """\
cdef struct S:
    int a

cdef class A:
    cdef int f(
        self, int b
    ) noexcept nogil:
        return inner(b)

    def h(self):
        pass

cdef inline int g(const char* text) except -1:
    return h(text)
"""


def test_definitions_are_found(tmp_path: Path) -> None:
    """Constants, functions, classes and methods are found; calls and local definitions are not."""
    python, cython = plant(tmp_path, {"a.py": PYTHON, "_a.pyx": CYTHON})
    assert architecture.definitions(python.path) == {"MOST", "A", "A.f", "g"}
    assert architecture.definitions(cython.path) == {"S", "A", "A.f", "A.h", "g"}


def test_a_lost_test_is_seen(tmp_path: Path) -> None:
    """A renamed test and a test in a moved file are reported."""
    plant(tmp_path, {"tests/a/test_b.py": "def test_c() -> None: ..."})
    page = "- `tests/a/test_b.py::test_c`\n- `tests/a/test_b.py::test_d`\n- `tests/test_b.py::test_c`\n"
    assert architecture.check_tests(page, tmp_path) == [
        "tests/a/test_b.py::test_d: there is no such test",
        "tests/test_b.py::test_c: there is no such test",
    ]


def test_citations_are_found() -> None:
    """Docstrings and comments count; a name such as P4 in code does not."""
    text = '"""What keeps promise P2; see promises P3."""\n# As it was (seed 001).\nh = h * P4\nseed 7\n'
    assert architecture.cited([text]) == {"P2", "P3", "seed 001"}


def test_a_lost_definition_is_seen(tmp_path: Path) -> None:
    """A missing file, and a name missing from its file, are reported."""
    plant(tmp_path, {"top/a.py": PYTHON})
    assert architecture.check_definitions("`top/a.py:A.f` calls `top/a.py:g`", tmp_path) == []
    assert architecture.check_definitions("`top/b.py:g`, `top/a.py:A.g`", tmp_path) == [
        "top/b.py: there is no such file",
        "top/a.py: does not define A.g",
    ]


@pytest.mark.parametrize(
    "init", [*(ROOT / "gossipkv").glob("*/**/__init__.py")], ids=lambda init: str(init.parent.relative_to(ROOT))
)
def test_a_room_lists_its_modules(init: Path) -> None:
    """The docstring of a room names each of its modules and folders once, in reading order, a line each."""
    listed = ROOM_LINE.findall(init.read_text(encoding="utf-8"))
    there = {path.name + "/" * path.is_dir() for path in init.parent.iterdir() if path.suffix in {"", ".py"}}
    assert sorted(listed) == sorted(there - {"__init__.py", "__pycache__/"})
