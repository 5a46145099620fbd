"""The fenced blocks of README.md and docs/: the commands and the output that they show."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.DOTALL | re.MULTILINE
)
PYTHON_NOTE = re.compile(r"^(?P<indent>\s*)(?P<code>\S.*?)  # (?P<note>.+)$")
HERE_DOCUMENT = re.compile(r"<<-?\s*'?(\w+)'?")
WILD = "…"


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line of its fence, the language behind the fence, its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Typed:
    """A command and the output that the page shows, if any."""

    command: str
    shown: str = ""


def pages() -> list[str]:
    """Return README.md and every page of docs/ that is written by hand, as paths from the root."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return ["README.md", *(page for page in found if not page.startswith("docs/reference/"))]


def blocks_in(page: str, text: str) -> list[Block]:
    """Return the fenced blocks of a text in order; indented blocks lose their indentation."""
    found = []
    for fence in FENCE.finditer(text):
        lines = [line.removeprefix(fence["indent"]) for line in fence["text"].splitlines(keepends=True)]
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(page, line, fence["language"].strip(), "".join(lines)))
    return found


def blocks_of(page: str) -> list[Block]:
    return blocks_in(page, (ROOT / page).read_text(encoding="utf-8"))


def commands(block: Block) -> list[Typed]:
    """Return the commands in a block of `sh` or `console`."""
    return _of_a_console(block) if block.language == "console" else [Typed(text) for text in _of_a_script(block.text)]


def _of_a_script(text: str) -> list[str]:
    """Return the commands of a script: one per line, continued behind a backslash or in a here-document."""
    found: list[str] = []
    begun: list[str] = []
    end = ""
    for line in text.splitlines():
        if not begun and (not line.strip() or line.lstrip().startswith("#")):
            continue
        begun.append(line)
        if end:
            end = "" if line.strip() == end else end
        elif document := HERE_DOCUMENT.search(line):
            end = document[1]
        if not end and not line.endswith("\\"):
            found.append("\n".join(begun))
            begun = []
    assert not begun, f"a command that does not end: {begun}"
    return found


def _of_a_console(block: Block) -> list[Typed]:
    """Return the commands of a console: `$ ` begins a command, `> ` continues it, other lines are its output."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
            continue
        assert found, f"{block.where}: output before the first command"
        typed, shown = found[-1]
        if line.startswith("> ") and not shown:
            typed.append(line[2:])
        else:
            shown.append(line)
    return [Typed("\n".join(typed), "\n".join(shown)) for typed, shown in found]


def is_shown(expected: str, actual: str) -> bool:
    """True if output matches a page: `…` matches anything in its line, and any lines if alone."""
    pattern = []
    for line in expected.rstrip().splitlines():
        if line.strip() == WILD:
            pattern.append(r"(?:[^\n]*\n)*")
        else:
            pattern.append("[^\n]*".join(re.escape(part) for part in line.rstrip().split(WILD)) + r"[ ]*\n")
    return re.fullmatch("".join(pattern), actual.rstrip() + "\n") is not None


def value_noted(note: str) -> str | None:
    """Return the Python literal that a comment begins with, up to its end, a comma or a colon; None for prose."""
    ends = [len(note), *(found.start() for found in re.finditer(r"[,:;] ", note))]
    for end in sorted(ends, reverse=True):
        try:
            ast.literal_eval(note[:end])
        except (ValueError, SyntaxError):
            continue
        return note[:end]
    return None


def checked(program: str) -> str:
    """Return the program with an assertion for each expression whose value a trailing comment gives."""
    lines = ["def shown_as(value, noted):", "    assert value == noted, (value, noted)", ""]
    for line in program.splitlines():
        noted = PYTHON_NOTE.match(line)
        value = value_noted(noted["note"]) if noted else None
        if noted is None or value is None or not _is_expression(noted["code"]):
            lines.append(line)
            continue
        code = noted["code"]
        printed = re.fullmatch(r"print\((.*)\)", code)
        lines.append(f"{noted['indent']}shown_as({printed[1] if printed else code}, {value})")
    return "\n".join(lines) + "\n"


def _is_expression(code: str) -> bool:
    try:
        ast.parse(code.removeprefix("await "), mode="eval")
    except SyntaxError:
        return False
    return True
