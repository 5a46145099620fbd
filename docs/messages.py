"""Write the references of the log's events and of all texts: `python docs/messages.py [DIRECTORY]`.

Texts are literals of at least two words. Assertions and docstrings are no texts, except the docstrings of commands.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import click

from gossipkv.cli import gossipkv_command

ROOT = Path(__file__).parents[1]
WIDTH = 100
GENERATED = "This page is generated; `python docs/messages.py` writes it."
LEVELS = {"debug", "info", "warning", "error"}
KINDS = {".py", ".pyx", ".pxd", ".html", ".js"}
WORDS = re.compile(r"[A-Za-z}”\"'`,;:.)][ \n]+[A-Za-z{(`'\"]")
STYLE = re.compile(r"(?:bold|dim|not) \w+")
CYTHON_SKIPPED = re.compile(r'"""(?s:.*?)"""|^\s*(?:assert\b|#).*$|^ *cdef extern .*$|\s# [^"\n]*$', re.MULTILINE)
CYTHON_LITERAL = re.compile(r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""")
CYTHON_LITERALS = re.compile(rf"(?:f?{CYTHON_LITERAL.pattern}\s*)+")


class Texts(ast.NodeVisitor):
    """The texts of a module as (kind, text), and its log events as (event, level, fields)."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[tuple[str, str]] = []
        self.events: list[tuple[str, str, list[str]]] = []
        self._kind = "text"
        self.visit(tree)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip assertions."""

    def visit_Call(self, node: ast.Call) -> None:
        before, name = self._kind, named(node.func)
        match node.func, node.args:
            case ast.Attribute(ast.Constant(), "split"), _:
                return
            case ast.Attribute(ast.Name(owner) | ast.Attribute(attr=owner), method), [ast.Constant(str(event)), *_]:
                if owner.lstrip("_") == "log" and method in LEVELS:
                    self.events.append((event, method, [one.arg for one in node.keywords if one.arg]))
                elif owner == "_warnings" and method == "say":
                    self.events.append((event, "warning", ["reason"]))
        if name[:1].isupper() and isinstance(node.func, ast.Name):
            self._kind = name
        self.generic_visit(node)
        self._kind = before

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._add(shown(node))
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._add(node.value)

    def _add(self, text: str) -> None:
        if is_text(text):
            self.found.append((self._kind, text))


def is_text(text: str) -> bool:
    """Return True for a literal of words, which is no style of a terminal."""
    return bool(WORDS.search(text)) and not STYLE.fullmatch(text)


class Page(HTMLParser):
    """The texts of a template, with `{name}` for inserted values."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        source = re.sub(r"\{#.*?#\}|<(style|script)\b.*?</\1>", "", source, flags=re.DOTALL)
        source = re.sub(r"\{%.*?%\}", "\n", source)
        self.feed(re.sub(r"\{(\{.*?\})\}", inserted, source, flags=re.DOTALL))

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name in dict(attrs).keys() & {"title", "aria-label", "placeholder"}:
            self.handle_data(dict(attrs)[name] or "")

    def handle_data(self, data: str) -> None:
        self.found += [("text", line.strip()) for line in data.splitlines() if is_text(line.strip())]


def inserted(braces: re.Match[str]) -> str:
    """Return an inserted expression of a template or of Cython as its last name, in braces."""
    return "{" + (re.findall(r"\w+", re.split(r"[|!]|:[,.\d]", braces[1])[0]) or ["…"])[-1] + "}"


def named(node: ast.expr) -> str:
    """Return the name that describes an expression in a text."""
    match node:
        case ast.Name(name) | ast.Attribute(attr=name) | ast.Subscript(_, ast.Constant(str(name))):
            return name.strip("_")
        case ast.Subscript(one) | ast.Await(one) | ast.Call(_, [ast.Name() | ast.Attribute() as one]) | ast.Call(one):
            return named(one)
        case ast.IfExp(_, ast.Constant(first), ast.Constant(second)):
            return f"{first}|{second}"
    return str(node.value) if isinstance(node, ast.Constant) else "…"


def shown(text: ast.JoinedStr) -> str:
    """Return an f-string with a name for each inserted value."""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{" + named(part.value) + "}" for part in text.values
    )


def cython_texts(source: str) -> list[tuple[str, str]]:
    """Return the texts of a Cython module, whose literals are read without a parser."""
    found, code = [], CYTHON_SKIPPED.sub("", source)
    for match in CYTHON_LITERALS.finditer(code):
        text = "".join(part[1:-1] for part in CYTHON_LITERAL.findall(match[0]))
        text = re.sub(r"\{([^{}]*)\}", inserted, text.replace("{{", "(").replace("}}", ")"))
        called = re.search(r"([A-Z]\w+)\(\s*f?$", code[max(0, match.start() - 80) : match.start()])
        found.append((called[1] if called else "text", text))
    return [one for one in found if is_text(one[1])]


def texts(path: Path) -> list[tuple[str, str]]:
    """Return the texts of a file of the program."""
    source = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".py":
            return Texts(ast.parse(source)).found
        case ".pyx" | ".pxd":
            return cython_texts(source)
        case ".js":
            return [("text", text) for text in re.findall(r"""["`]([^"`\n]*)["`]""", source) if is_text(text)]
    return Page(source).found


def helps(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[str]:
    """Yield the help of a command and of those below."""
    context = command.make_context(path, [], parent, resilient_parsing=True, terminal_width=WIDTH)
    yield command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if one := command.get_command(context, name):
                yield from helps(one, name, context)


def messages() -> str:
    """Return the page of all texts."""
    areas: dict[str, list[str]] = {}
    paths = (*(ROOT / "gossipkv").rglob("*.*"), *(ROOT / "src_ext" / "gossipkv").rglob("*.p[xy][dx]"))
    for path in sorted(path for path in paths if path.suffix in KINDS):
        if found := texts(path):
            where = path.relative_to(ROOT)
            parts = where.parts[1:] if where.parts[0] == "gossipkv" else where.parts[2:]
            told = ((kind, " ".join(text.split())) for kind, text in found)
            lines = dict.fromkeys(text if kind == "text" else f"{kind}: {text}" for kind, text in told)
            areas.setdefault(parts[0] if len(parts) > 1 else "gossipkv", []).append(
                f"### {where.as_posix()}\n\n```text\n" + "\n".join(lines) + "\n```\n"
            )
    commands = "\n".join(f"```text\n{one}\n```\n" for one in helps(gossipkv_command, "gossipkv"))
    sections = [f"## {area}\n\n" + "\n".join(files) for area, files in sorted(areas.items())]
    head = (
        f"# All texts of the program\n\n{GENERATED} Braces stand for inserted values. A name before a colon is\n"
        "the class that takes the text. The [log's events](log.md) and their levels have a page of their own.\n"
    )
    return "\n".join([head, *sections, "## Help of the commands\n", commands])


def log() -> str:
    """Return the page of the log's events; raises KeyError for an event without a meaning."""
    notes = tomllib.loads((ROOT / "docs" / "log.toml").read_text(encoding="utf-8"))
    fields: dict[tuple[str, str], dict[str, None]] = {}
    for path in (ROOT / "gossipkv").rglob("*.py"):
        for event, level, names in Texts(ast.parse(path.read_text(encoding="utf-8"))).events:
            fields.setdefault((event, level), {}).update(dict.fromkeys(names))
    told = {(event, level): text for event, texts in notes["events"].items() for level, text in texts.items()}
    if wrong := fields.keys() ^ told.keys():
        raise KeyError(f"docs/log.toml: {wrong} must be in the code and in the file")
    page = [f"# The log's events\n\n{GENERATED} Meanings are in `docs/log.toml`.", notes["head"]]
    page.append("| event | level | fields | meaning, and action |\n|---|---|---|---|")
    for (event, level), text in sorted(told.items()):
        names = ", ".join(f"`{one}`" for one in sorted(fields[event, level]))
        page.append(f"| `{event}` | {level} | {names} | {text} |")
    page.append("\nThe event `http_trouble` has these reasons:\n\n| reason | action |\n|---|---|")
    return "\n".join(page + [f"| {names} | {action} |" for names, action in notes["http_trouble"].items()]) + "\n"


if __name__ == "__main__":
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "reference"
    for name, text in (("messages.md", messages()), ("log.md", log())):
        (directory / name).write_text(text, encoding="utf-8")
