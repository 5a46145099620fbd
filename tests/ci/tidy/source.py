"""The source tree for the tidy checks: files, imports, lengths of functions.

Python is read through `ast` and `tokenize`. No parser of Cython works without compiling, so `.pyx` and `.pxd` are read
by line and indentation, which is enough for imports and lengths in formatted code.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
CODE = (".py", ".pyi", ".pyx", ".pxd")
TEXT = (*CODE, ".h", ".md", ".toml", ".txt", ".in", ".cfg", ".json", ".yml", ".yaml", ".sh", ".java", "")


@dataclass(frozen=True)
class Import:
    """One import of a file; `name` is the imported name, empty for the module itself."""

    line: int
    module: str
    name: str
    cimport: bool

    @property
    def path(self) -> str:
        """Return the whole dotted path, which may end in a module or in a name within one."""
        return f"{self.module}.{self.name}" if self.name else self.module


@dataclass(frozen=True)
class Function:
    """A function or method: its first line and its number of lines."""

    line: int
    name: str
    lines: int


@dataclass(frozen=True)
class Source:
    root: Path
    path: Path

    @cached_property
    def where(self) -> str:
        return self.path.relative_to(self.root).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def module(self) -> str:
        """Return the dotted name: `gossipkv.storage._sorted_file` also for the file under `src_ext`."""
        parts = self.path.relative_to(self.root).with_suffix("").parts
        parts = parts[1:] if parts[0] == "src_ext" else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def package(self) -> str:
        """Return the part of the system: `storage` for all of `gossipkv/storage/`, `errors` for `errors.py`."""
        parts = self.module.split(".")
        return parts[1] if len(parts) > 1 else ""

    @property
    def is_cython(self) -> bool:
        return self.path.suffix in {".pyx", ".pxd"}

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.where)

    @cached_property
    def imports(self) -> list[Import]:
        return list(_cython_imports(self.lines) if self.is_cython else _python_imports(self.tree))

    @cached_property
    def functions(self) -> list[Function]:
        return list(_cython_functions(self.lines) if self.is_cython else _python_functions(self.tree))

    @cached_property
    def code_and_comments(self) -> list[tuple[int, str, str]]:
        """Return each line that has code or a comment as (number, code without strings, comment)."""
        if self.is_cython:
            return [_split_cython(number, line) for number, line in enumerate(self.lines, start=1)]
        return _split_python(self.text)


@cache
def read(root: Path, path: Path) -> Source:
    """Return the same Source for every check of a run, since parsing dominates their cost."""
    return Source(root, path)


def sources(root: Path = ROOT, *tops: str) -> list[Source]:
    found = []
    for top in tops or ("gossipkv", "src_ext", "tests", "setup.py"):
        start = root / top
        paths = [start] if start.is_file() else start.rglob("*")
        found += [read(root, path) for path in paths if path.suffix in CODE and "__pycache__" not in path.parts]
    return sorted(found, key=lambda source: source.where)


def texts(root: Path = ROOT) -> list[Path]:
    """Return every text file of the project, in any language."""
    tops = ("gossipkv", "src_ext", "tests", "docs", ".ci")
    found = [path for top in tops for path in (root / top).rglob("*")]
    found += [path for path in root.iterdir() if not path.name.startswith(".") or path.name == ".gitignore"]
    return sorted(p for p in found if p.is_file() and p.suffix in TEXT and "__pycache__" not in p.parts)


def _python_imports(tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, "", cimport=False)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield Import(node.lineno, "." * node.level + (node.module or ""), alias.name, cimport=False)


def _python_functions(tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1)


FROM = re.compile(r"^\s*from\s+([\w.]+)\s+(cimport|import)\s+(.*)$")
IMPORT = re.compile(r"^\s*(cimport|import)\s+(.*)$")


def _cython_imports(lines: list[str]) -> Iterator[Import]:
    for number, statement in _statements(lines):
        if match := FROM.match(statement):
            module, word, names = match.groups()
            for name in names.strip("() ").split(","):
                if name.strip():
                    yield Import(number, module, name.split()[0], cimport=word == "cimport")
        elif match := IMPORT.match(statement):
            word, names = match.groups()
            for name in names.split(","):
                yield Import(number, name.split()[0], "", cimport=word == "cimport")


def _statements(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Return lines of code without comments and docstrings; lines inside brackets are joined to the opening line."""
    joined, start, depth = "", 0, 0
    in_docstring = False
    for number, line in enumerate(lines, start=1):
        quotes = line.count('"""')
        if in_docstring or quotes:
            in_docstring ^= quotes % 2 == 1
            continue
        _, code, _ = _split_cython(number, line)
        joined, start = (f"{joined} {code.strip()}", start) if depth else (code, number)
        depth += sum(code.count(bracket) for bracket in "([{") - sum(code.count(bracket) for bracket in ")]}")
        if depth <= 0:
            depth = 0
            yield start, joined


CYTHON_FUNCTION = re.compile(
    r"^(?P<indent>\s*)(?:async\s+def|def|cpdef|cdef)\s+(?!class\b|struct\b|enum\b|union\b|extern\b|packed\b)"
    r"[^=#]*?(?P<name>\w+)\s*\("
)


def _cython_functions(lines: list[str]) -> Iterator[Function]:
    for start, line in enumerate(lines):
        match = CYTHON_FUNCTION.match(line)
        if match is None:
            continue
        indent = len(match["indent"])
        end = start + 1
        last = start
        while end < len(lines):
            text = lines[end]
            if text.strip() and not text.lstrip().startswith(")") and len(text) - len(text.lstrip()) <= indent:
                break
            last = end if text.strip() else last
            end += 1
        yield Function(start + 1, match["name"], last - start + 1)


STRING = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")


def _split_cython(number: int, line: str) -> tuple[int, str, str]:
    code, _, comment = STRING.sub('""', line).partition("#")
    return number, code.rstrip(), comment.strip()


def _split_python(text: str) -> list[tuple[int, str, str]]:
    code: dict[int, list[str]] = {}
    comments: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string.lstrip("#").strip()
        elif token.type in {tokenize.NAME, tokenize.OP, tokenize.NUMBER}:
            code.setdefault(token.start[0], []).append(token.string)
    return [(n, " ".join(code.get(n, [])), comments.get(n, "")) for n in sorted(code.keys() | comments.keys())]
