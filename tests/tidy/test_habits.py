"""Sizes, names, reasons, docstrings, places: the tree keeps the house rules, and the checks see what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tidy import habits
from tests.tidy.planted import plant
from tests.tidy.source import ROOT, sources, texts

if TYPE_CHECKING:
    from pathlib import Path

# How many exceptions the project allows itself.  Lower a number when one goes; raise it only with an argument.
ALLOWED = {"Any": 0, "type: ignore": 0, "noqa": 54, "pragma": 0, "no-cython-lint": 0}


def test_sizes() -> None:
    """No module is over 600 lines but those that are listed with their reason, no function over 70."""
    assert habits.check_sizes(sources(), habits.LONG_MODULES) == []


def test_the_median_module_is_small() -> None:
    """Half of the package's modules have at most 200 lines."""
    package = [source for source in sources(ROOT, "gossipkv", "src_ext") if source.path.suffix in {".py", ".pyx"}]
    assert habits.check_median(package) == []


def test_names() -> None:
    """No file or folder is called utils, helpers, manager or common."""
    assert habits.check_names(sources()) == []


def test_exceptions_have_reasons() -> None:
    """Every Any, ignore, noqa and pragma says on its line why."""
    assert habits.check_reasons(sources()) == []


def test_exceptions_are_counted() -> None:
    """There are no more exceptions of a kind than were agreed on."""
    counts = habits.count_exceptions(sources())
    assert {kind: count for kind, count in counts.items() if count > ALLOWED[kind]} == {}


def test_directives() -> None:
    """Cython's directives for whole modules stand in setup.py, and none of them turns bounds checks off."""
    assert habits.check_directives(sources()) == []


def test_tests_say_what_they_show() -> None:
    """Each test has a docstring of one line."""
    assert habits.check_test_docstrings(sources(ROOT, "tests")) == []


def test_no_foreign_places() -> None:
    """No file names a path of the machine it was made on."""
    assert habits.check_places(texts(), ROOT) == []


@pytest.mark.parametrize("name", ["gossipkv/a.py", "src_ext/gossipkv/_a.pyx", "tests/test_a.py"])
def test_a_long_module_is_seen(tmp_path: Path, name: str) -> None:
    """A line over the cap is reported, the cap is not."""
    assert habits.check_sizes(plant(tmp_path, {name: "x = 1\n" * 600})) == []
    (wrong,) = habits.check_sizes(plant(tmp_path, {name: "x = 1\n" * 601}))
    assert "601 lines" in wrong


def test_a_listed_module_may_be_long(tmp_path: Path) -> None:
    """One that is listed passes; a line of the list for a module that is short, or gone, is reported."""
    tree = plant(tmp_path, {"gossipkv/a.py": "x = 1\n" * 601, "gossipkv/b.py": "x = 1\n" * 600})
    assert habits.check_sizes(tree, {"gossipkv/a.py": "one idea"}) == []
    wrong = habits.check_sizes(tree, dict.fromkeys(["gossipkv/a.py", "gossipkv/b.py", "gossipkv/c.py"], "one idea"))
    assert wrong == [
        "gossipkv/b.py: listed as long, but it has 600 lines",
        "gossipkv/c.py: listed as long, but it has 0 lines",
    ]


HEADS = [
    ("gossipkv/a.py", "class A:\n    async def f(self):\n"),
    ("src_ext/gossipkv/_a.pyx", "cdef class A:\n    cdef int f(self, int x) except -1 nogil:\n"),
    ("src_ext/gossipkv/_a.pyx", "class A:\n    def f(self):\n"),
    ("src_ext/gossipkv/_a.pyx", "if True:\n    cdef inline const unsigned char* f(Cursor* c) except NULL:\n"),
]


@pytest.mark.parametrize(("name", "head"), HEADS)
def test_a_long_function_is_seen(tmp_path: Path, name: str, head: str) -> None:
    """A function over its size is reported, in Python and in Cython, wherever it stands."""
    assert habits.check_sizes(plant(tmp_path, {name: head + "        x = 1\n" * 69 + "\n\n# more\n"})) == []
    (wrong,) = habits.check_sizes(plant(tmp_path, {name: head + "        x = 1\n\n" * 35 + "        x = 1\n"}))
    assert ": f has 72 lines" in wrong


def test_a_long_signature_counts(tmp_path: Path) -> None:
    """A Cython signature over several lines belongs to its function."""
    head = "cdef int f(\n    int x,\n) except -1:\n"
    (wrong,) = habits.check_sizes(plant(tmp_path, {"src_ext/gossipkv/_a.pyx": head + "    x = 1\n" * 70}))
    assert ": f has 73 lines" in wrong


def test_a_large_median_is_seen(tmp_path: Path) -> None:
    """The median counts modules with content, and no `__init__`."""
    sizes = {"gossipkv/a.py": 10, "gossipkv/b.py": 201, "gossipkv/c.py": 300, "gossipkv/__init__.py": 1}
    tree = plant(tmp_path, {name: "x = 1\n" * size for name, size in sizes.items()})
    assert habits.check_median(tree) == ["the median module has 201 lines, at most 200"]
    assert habits.check_median(tree[:2]) == []


@pytest.mark.parametrize(
    "name",
    ["gossipkv/utils.py", "gossipkv/helpers/a.py", "gossipkv/task_manager.py", "src_ext/gossipkv/_common.pyx"],
)
def test_a_vague_name_is_seen(tmp_path: Path, name: str) -> None:
    """Each banned word is seen in files and folders."""
    assert len(habits.check_names(plant(tmp_path, {name: ""}))) == 1


BARE = [
    ("a.py", "from typing import Any\n", "Any"),
    ("a.pyi", "def f(x: Any) -> None: ...\n", "Any"),
    ("a.py", "import os  # noqa: F401\n", "noqa"),
    ("a.py", "import os  # noqa\n", "noqa"),
    ("a.py", "x = f()  # type: ignore[attr-defined]\n", "type: ignore"),
    ("a.py", "if x:  # pragma: no cover\n    pass\n", "pragma"),
    ("_a.pyx", "x = 1  # no-cython-lint\n", "no-cython-lint"),
    ("_a.pyx", "cdef object f(x: Any):\n    pass\n", "Any"),
]


@pytest.mark.parametrize(("name", "text", "marker"), BARE)
def test_an_exception_without_reason_is_seen(tmp_path: Path, name: str, text: str, marker: str) -> None:
    """Each kind of exception is reported when nothing beside it says why, and counted."""
    tree = plant(tmp_path, {f"gossipkv/{name}": text})
    (wrong,) = habits.check_reasons(tree)
    assert wrong.startswith(f"gossipkv/{name}:1: `{marker}`")
    assert habits.count_exceptions(tree)[marker] == 1


REASONED = [
    ("a.py", "from typing import Any  # msgpack decodes to anything\n", "Any"),
    ("a.py", "import os  # noqa: F401  # a name that users import\n", "noqa"),
    ("a.py", "import os  # noqa: F401, E402 - the path is set first\n", "noqa"),
    ("a.py", "x = f()  # type: ignore[attr-defined, misc]  # the stub lags behind\n", "type: ignore"),
    ("a.py", "if x:  # pragma: no cover - only on a full disk\n    pass\n", "pragma"),
    ("_a.pyx", "x = 1  # no-cython-lint: the table is wider\n", "no-cython-lint"),
]


@pytest.mark.parametrize(("name", "text", "marker"), REASONED)
def test_a_reasoned_exception_is_counted_only(tmp_path: Path, name: str, text: str, marker: str) -> None:
    """With its reason beside it an exception passes, and still counts."""
    tree = plant(tmp_path, {f"gossipkv/{name}": text})
    assert habits.check_reasons(tree) == []
    assert habits.count_exceptions(tree)[marker] == 1


def test_words_in_strings_are_no_exceptions(tmp_path: Path) -> None:
    """Any in a sentence, a string or a longer name is not an exception."""
    text = '"""Any of these."""\nx = "Any"  # Any word here is only a word.\nAnything = 1\n'
    assert set(habits.count_exceptions(plant(tmp_path, {"gossipkv/a.py": text})).values()) == {0}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src_ext/gossipkv/_a.pyx", "# cython: boundscheck=False\n"),
        ("src_ext/gossipkv/_a.pyx", "# distutils: extra_compile_args=-O3\n"),
        ("setup.py", 'DIRECTIVES = {"boundscheck": False}\n'),
    ],
)
def test_a_directive_is_seen(tmp_path: Path, name: str, text: str) -> None:
    """Each planted directive for a whole module is reported."""
    assert len(habits.check_directives(plant(tmp_path, {name: text}))) == 1


@pytest.mark.parametrize(
    "body",
    ["    assert True\n", '    """Two.\n\n    Lines.\n    """\n', '    """"""\n', "    # A comment.\n    pass\n"],
)
def test_a_silent_test_is_seen(tmp_path: Path, body: str) -> None:
    """A test without a docstring of one line is reported, in a class as well."""
    inside = "class TestIt:\n" + "".join(
        f"    {line}" for line in f"def test_b(self):\n{body}".splitlines(keepends=True)
    )
    tree = plant(tmp_path, {"tests/test_a.py": f"async def test_a():\n{body}", "tests/test_b.py": inside})
    assert len(habits.check_test_docstrings(tree)) == 2


FOREIGN = [("/{}/x", "work"), ("/root/{}", ".pyenv"), ("/tmp/{}/x", "wt"), ("{}-bench", "farm")]


@pytest.mark.parametrize(("place", "word"), FOREIGN)
def test_a_foreign_place_is_seen(tmp_path: Path, place: str, word: str) -> None:
    """A path of a machine is reported with the line it stands in; one that only resembles it is not."""
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(f"Fine: {place.format('framework')}.\nSee {place.format(word)}.\n", encoding="utf-8")
    (wrong,) = habits.check_places(texts(tmp_path), tmp_path)
    assert wrong.startswith("docs/page.md:2: ")
