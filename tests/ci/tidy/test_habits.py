"""Sizes, names, reasons, places: the tree keeps the house rules, and the checks find violations."""

from __future__ import annotations

import ast
import re
from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.ci.tidy.planted import plant
from tests.ci.tidy.source import ROOT, sources, texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.ci.tidy.source import Source


MODULE_LINES = 600  # A longer module holds two ideas, unless it is listed.
MEDIAN_LINES = 200
FUNCTION_LINES = 70  # This is one screen.
CONSTRUCTOR_ARGUMENTS = 8  # A class that needs more holds two ideas, or its settings belong in a record.

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}


# Modules over the cap that hold one idea, with that idea: a cut would be worse than the length.
LONG_MODULES: dict[str, str] = {
    "gossipkv/client/dispatcher.py": "one decision on where each request is: its parts would change each other's state",
    "src_ext/gossipkv/loadtest/generator.pyx": "the one loop of a load: its parts would share all of its fields",
    "src_ext/gossipkv/serving/loop/loop.pyx": "the one order of a round, also where it sleeps in the place of others",
}


def check_sizes(tree: list[Source], long_modules: dict[str, str] | None = None) -> list[str]:
    """Report modules and functions over their size, and listed modules that are not long."""
    listed = long_modules or {}
    sizes = {source.where: len(source.lines) for source in tree}
    wrong = [
        f"{where}: listed as long, but it has {sizes.get(where, 0)} lines"
        for where in sorted(listed)
        if sizes.get(where, 0) <= MODULE_LINES
    ]
    for source in tree:
        if len(source.lines) > MODULE_LINES and source.where not in listed:
            wrong.append(f"{source.where}: {len(source.lines)} lines, at most {MODULE_LINES}")
        wrong += [
            f"{source.where}:{function.line}: {function.name} has {function.lines} lines, at most {FUNCTION_LINES}"
            for function in source.functions
            if function.lines > FUNCTION_LINES
        ]
    return wrong


# Constructors over the cap, with the reason.
LONG_CONSTRUCTORS: dict[str, str] = {
    "gossipkv/launcher/local_cluster.py:Cluster": "users call it by keywords, which are the options of a command",
}


def check_constructors(tree: list[Source], long_constructors: dict[str, str] | None = None) -> list[str]:
    """Report Python constructors with too many arguments, and listed ones with few."""
    listed, wrong = {*(long_constructors or {})}, []
    for source in tree:
        found = ast.walk(ast.parse(source.text)) if source.path.suffix == ".py" else ()
        for one in (node for node in found if isinstance(node, ast.ClassDef)):
            for function in one.body:
                if not isinstance(function, ast.FunctionDef) or function.name not in {"__init__", "__new__"}:
                    continue
                arguments = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
                if len(arguments) - 1 <= CONSTRUCTOR_ARGUMENTS:
                    continue
                if (name := f"{source.where}:{one.name}") in listed:
                    listed.remove(name)
                else:
                    wrong.append(f"{name} takes {len(arguments) - 1} arguments, at most {CONSTRUCTOR_ARGUMENTS}")
    return wrong + [f"{name}: listed as long, and is not" for name in sorted(listed)]


def check_median(tree: list[Source]) -> list[str]:
    """Report a large median module of the package; empty modules do not count."""
    sizes = [len(source.lines) for source in tree if source.path.name != "__init__.py" and source.lines]
    middle = median(sizes) if sizes else 0
    return [f"the median module has {middle} lines, at most {MEDIAN_LINES}"] if middle > MEDIAN_LINES else []


def check_names(tree: list[Source]) -> list[str]:
    return [
        f"{source.where}: `{word}` says nothing about what is inside"
        for source in tree
        for part in source.path.relative_to(source.root).with_suffix("").parts
        for word in part.split("_")
        if word in VAGUE_NAMES
    ]


# Pages and folders that an installed package lacks.
PLACES = re.compile(r"(?<!main/)\b(?:docs|deploy|tests|src_ext)/|(?<![/\w])[A-Z]{4,}\.md")


def check_said_places(tree: list[Source]) -> list[str]:
    """Report paths in user-visible texts of the package: an installed wheel lacks the files."""
    return [
        f"{source.where}:{node.lineno}: a text names {match[0]}: cite the help of a command, or a URL below `DOCS`"
        for source in tree
        if source.module.startswith("gossipkv") and source.path.suffix == ".py"
        for node in _said(ast.parse(source.text))
        if (match := PLACES.search(str(node.value))) is not None
    ]


def _said(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the string constants that are no docstrings."""
    comments = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in comments:
            yield node


# An exception is a marker on a line; its reason follows it, or is another comment on that line.
MARKERS = {
    "Any": None,
    "type: ignore": re.compile(r"type:\s*ignore(\[[\w, -]+\])?"),
    "noqa": re.compile(r"noqa(:\s*[A-Z]+\d+(\s*,\s*[A-Z]+\d+)*)?"),
    "pragma": re.compile(r"pragma:\s*[\w ]+?(?=\s+[-#:(]|$)"),
    "no-cython-lint": re.compile(r"no-cython-lint"),
}
REASON = re.compile(r"\w+\W+\w+")  # A reason has at least two words.


def exceptions(source: Source) -> list[tuple[int, str, bool]]:
    """Return each exception of a file: its line, its marker, and True if a reason stands beside it."""
    found = []
    for number, code, comment in source.code_and_comments:
        if re.search(r"\bAny\b", code):
            found.append((number, "Any", bool(REASON.search(_unmarked(comment)))))
        for marker, pattern in MARKERS.items():
            if pattern is not None and pattern.search(comment):
                found.append((number, marker, bool(REASON.search(_unmarked(comment)))))
    return found


def _unmarked(comment: str) -> str:
    rest = comment
    for pattern in MARKERS.values():
        rest = pattern.sub(" ", rest) if pattern is not None else rest
    return rest


def check_reasons(tree: list[Source]) -> list[str]:
    return [
        f"{source.where}:{line}: `{marker}` without its reason on the line"
        for source in tree
        for line, marker, reasoned in exceptions(source)
        if not reasoned
    ]


DIRECTIVE = re.compile(r"^\s*#\s*(cython|distutils)\s*:")
UNCHECKED = re.compile(r"""boundscheck["']?\s*[:=]\s*False""")


def check_directives(tree: list[Source]) -> list[str]:
    """Report module-wide directives outside setup.py, and bounds checks that are off for a module."""
    wrong = []
    for source in tree:
        for number, line in enumerate(source.lines, start=1):
            if source.is_cython and DIRECTIVE.match(line):
                wrong.append(f"{source.where}:{number}: directives of a module stand in setup.py alone")
            if source.where == "setup.py" and UNCHECKED.search(line):
                wrong.append(f"{source.where}:{number}: bounds checks are never off for a whole module")
    return wrong


# One-letter classes keep this file from matching its own pattern.
FOREIGN = re.compile(r"(?<![\w.])/[w]ork/|\.[l]ibrary/|\b[f]arm-(bench|studio)|/[r]oot/\.pyenv|/[t]mp/(wt|gkv|venv)\b")


def check_places(paths: list[Path], root: Path) -> list[str]:
    """Report lines that name a path of the machine on which the project was made, or a tool of its workplace."""
    return [
        f"{path.relative_to(root)}:{number}: names `{match[0]}`; the project speaks of itself alone"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if (match := FOREIGN.search(line))
    ]


def test_sizes() -> None:
    """Modules have at most 600 lines, unless listed with a reason, and functions at most 70."""
    assert check_sizes(sources(), LONG_MODULES) == []


def test_constructors_take_few_arguments() -> None:
    assert check_constructors(sources(ROOT, "gossipkv"), LONG_CONSTRUCTORS) == []


def test_a_long_constructor_is_seen(tmp_path: Path) -> None:
    """One argument too many of any kind is reported; `self` does not count, and a listed constructor passes."""
    text = "class A:\n    def __init__(self, {}): ...\n"
    names = [f"a{number}" for number in range(CONSTRUCTOR_ARGUMENTS + 1)]
    long, short = ", ".join([*names[:3], "*", *names[3:]]), ", ".join(names[1:])
    tree = plant(tmp_path, {"gossipkv/a.py": text.format(long), "gossipkv/b.py": text.format(short)})
    assert check_constructors(tree) == ["gossipkv/a.py:A takes 9 arguments, at most 8"]
    assert check_constructors(tree, {"gossipkv/a.py:A": "why"}) == []
    assert check_constructors(tree, {"gossipkv/a.py:A": "why", "gossipkv/b.py:A": "why"}) == [
        "gossipkv/b.py:A: listed as long, and is not"
    ]


def test_the_median_module_is_small() -> None:
    """Half of the package's modules have at most 200 lines."""
    package = [source for source in sources(ROOT, "gossipkv", "src_ext") if source.path.suffix in {".py", ".pyx"}]
    assert check_median(package) == []


def test_names() -> None:
    assert check_names(sources()) == []


def test_texts_name_what_users_have() -> None:
    """No user-visible text of the package names a page or folder that only the repository has."""
    assert check_said_places(sources(ROOT, "gossipkv")) == []


@pytest.mark.parametrize("text", ["see docs/users/wire.md", "look at tests/unit", "README.md has it"])
def test_a_text_that_names_a_path_is_seen(tmp_path: Path, text: str) -> None:
    """Paths count in errors, also in f-strings, but not in docstrings and URLs."""
    code = f'"""{text}"""\nurl = "https://x/main/docs/users/wire.md"\n'
    assert check_said_places(plant(tmp_path, {"gossipkv/a.py": code})) == []
    assert (
        len(check_said_places(plant(tmp_path, {"gossipkv/a.py": code + f'raise ValueError(f"{{url}}: {text}")\n'})))
        == 1
    )


def test_exceptions_have_reasons() -> None:
    """Every Any, ignore, noqa and pragma has a reason on its line."""
    assert check_reasons(sources()) == []


def test_directives() -> None:
    """Cython's module-wide directives are in setup.py, and none turns bounds checks off."""
    assert check_directives(sources()) == []


def test_no_foreign_places() -> None:
    assert check_places(texts(), ROOT) == []


@pytest.mark.parametrize("name", ["gossipkv/a.py", "src_ext/gossipkv/_a.pyx", "tests/test_a.py"])
def test_a_long_module_is_seen(tmp_path: Path, name: str) -> None:
    assert check_sizes(plant(tmp_path, {name: "x = 1\n" * 600})) == []
    (wrong,) = check_sizes(plant(tmp_path, {name: "x = 1\n" * 601}))
    assert "601 lines" in wrong


def test_a_listed_module_may_be_long(tmp_path: Path) -> None:
    """A listed module passes; a listed module that is short or missing is reported."""
    tree = plant(tmp_path, {"gossipkv/a.py": "x = 1\n" * 601, "gossipkv/b.py": "x = 1\n" * 600})
    assert check_sizes(tree, {"gossipkv/a.py": "one idea"}) == []
    wrong = check_sizes(tree, dict.fromkeys(["gossipkv/a.py", "gossipkv/b.py", "gossipkv/c.py"], "one idea"))
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
    assert check_sizes(plant(tmp_path, {name: head + "        x = 1\n" * 69 + "\n\n# more\n"})) == []
    (wrong,) = check_sizes(plant(tmp_path, {name: head + "        x = 1\n\n" * 35 + "        x = 1\n"}))
    assert ": f has 72 lines" in wrong


def test_a_long_signature_counts(tmp_path: Path) -> None:
    head = "cdef int f(\n    int x,\n) except -1:\n"
    (wrong,) = check_sizes(plant(tmp_path, {"src_ext/gossipkv/_a.pyx": head + "    x = 1\n" * 70}))
    assert ": f has 73 lines" in wrong


def test_a_large_median_is_seen(tmp_path: Path) -> None:
    """The median counts modules with content, and no `__init__`."""
    sizes = {"gossipkv/a.py": 10, "gossipkv/b.py": 201, "gossipkv/c.py": 300, "gossipkv/__init__.py": 1}
    tree = plant(tmp_path, {name: "x = 1\n" * size for name, size in sizes.items()})
    assert check_median(tree) == ["the median module has 201 lines, at most 200"]
    assert check_median(tree[:2]) == []


@pytest.mark.parametrize(
    "name",
    ["gossipkv/utils.py", "gossipkv/helpers/a.py", "gossipkv/task_manager.py", "src_ext/gossipkv/_common.pyx"],
)
def test_a_vague_name_is_seen(tmp_path: Path, name: str) -> None:
    assert len(check_names(plant(tmp_path, {name: ""}))) == 1


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
    tree = plant(tmp_path, {f"gossipkv/{name}": text})
    (wrong,) = check_reasons(tree)
    assert wrong.startswith(f"gossipkv/{name}:1: `{marker}`")


REASONED = [
    ("a.py", "from typing import Any  # msgpack decodes to anything\n", "Any"),
    ("a.py", "import os  # noqa: F401  # a name that users import\n", "noqa"),
    ("a.py", "import os  # noqa: F401, E402 - the path is set first\n", "noqa"),
    ("a.py", "x = f()  # type: ignore[attr-defined, misc]  # the stub lags behind\n", "type: ignore"),
    ("a.py", "if x:  # pragma: no cover - only on a full disk\n    pass\n", "pragma"),
    ("_a.pyx", "x = 1  # no-cython-lint: the table is wider\n", "no-cython-lint"),
]


@pytest.mark.parametrize(("name", "text", "marker"), REASONED)
def test_a_reasoned_exception_passes(tmp_path: Path, name: str, text: str, marker: str) -> None:
    (source,) = plant(tmp_path, {f"gossipkv/{name}": text})
    assert exceptions(source) == [(1, marker, True)]
    assert check_reasons([source]) == []


def test_words_in_strings_are_no_exceptions(tmp_path: Path) -> None:
    text = '"""Any of these."""\nx = "Any"  # Any word here is only a word.\nAnything = 1\n'
    (source,) = plant(tmp_path, {"gossipkv/a.py": text})
    assert exceptions(source) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src_ext/gossipkv/_a.pyx", "# cython: boundscheck=False\n"),
        ("src_ext/gossipkv/_a.pyx", "# distutils: extra_compile_args=-O3\n"),
        ("setup.py", 'DIRECTIVES = {"boundscheck": False}\n'),
    ],
)
def test_a_directive_is_seen(tmp_path: Path, name: str, text: str) -> None:
    assert len(check_directives(plant(tmp_path, {name: text}))) == 1


FOREIGN_PLACES = [("/{}/x", "work"), ("/root/{}", ".pyenv"), ("/tmp/{}/x", "wt"), ("{}-bench", "farm")]


@pytest.mark.parametrize(("place", "word"), FOREIGN_PLACES)
def test_a_foreign_place_is_seen(tmp_path: Path, place: str, word: str) -> None:
    """A path of a machine is reported with its line; a path that only resembles it is not."""
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(f"Fine: {place.format('framework')}.\nSee {place.format(word)}.\n", encoding="utf-8")
    (wrong,) = check_places(texts(tmp_path), tmp_path)
    assert wrong.startswith("docs/page.md:2: ")
