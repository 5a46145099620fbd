"""Write the stubs of the clients' methods (`make stubs`), which are written once: `awaited.pyi` and `plain.pyi`.

A source says `Asked[X]` for what a shell answers: `async def … -> X` under Trio and asyncio, and `def … -> X` in plain
threads.
"""

from __future__ import annotations

import ast
import copy
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "gossipkv" / "client"
FORMS = {"awaited": True, "plain": False}  # True: its methods are awaited.
SHOWN = {"Client": ("calls", "Calls"), "Dataset": ("dataset", "Dataset"), "Table": ("table", "Table")}
SPECIAL = {"__init__", "__getitem__"}
WIDTH = 120

# The types of a scan without columns and with them, by whether methods are awaited.
FEEDS = {False: "Iterator[Change]", True: "Scan[Change]"}
SCANS = {False: ("Iterator[Record]", "Batches"), True: ("Scan[Record]", "Scan[Records]")}
ORIGINS = {
    "Literal": "typing",
    "Iterator": "collections.abc",
    "Change": "gossipkv.client.changes",
    "Record": "gossipkv.client.reads",
    "Records": "gossipkv.client._client",
    "Batches": "gossipkv.client.pages",
    "Scan": "gossipkv.client.scan",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """A module of the client: its classes, and where its names come from."""

    def __init__(self, module: str) -> None:
        self.tree = ast.parse((CLIENT / f"{module}.py").read_text(encoding="utf-8"))
        self.classes = {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}
        self.origins: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                self.origins |= {alias.asname or alias.name: node.module or "" for alias in node.names}


class Stub:
    """The stub of one form."""

    def __init__(self, *, is_awaited: bool) -> None:
        self._is_awaited = is_awaited
        self._used: dict[str, str] = {}  # The names in signatures, and where they come from.
        self._lines: list[str] = []
        for name, (module, of) in SHOWN.items():
            source = Source(module)
            self._lines += ["", f"class {name}:"]
            if name != "Client":  # The shells have the rest of a client.
                self._lines.append("    name: str")
            for member in source.classes[of].body:
                if isinstance(member, Function) and (member.name in SPECIAL or not member.name.startswith("_")):
                    self._function(member, "    ", source)
            if name != "Client" and not is_awaited:  # `in` cannot be awaited.
                self._lines.append("    def __contains__(self, key: Key) -> bool: ...")

    def text(self) -> str:
        imports: dict[str, list[str]] = {}
        for name, origin in sorted(self._used.items()):
            if name not in SHOWN:
                imports.setdefault(origin, []).append(name)
        lines = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(imports.items())]
        lines.sort(key=lambda line: line.startswith("from gossipkv"))
        lines.insert(sum(not line.startswith("from gossipkv") for line in lines), "")
        lines += ["", '_Default = TypeVar("_Default")']
        return "\n".join(["# Made by .ci/stubs.py (`make stubs`).", "", *lines, *self._lines, ""])

    def _function(self, node: Function, indent: str, source: Source) -> None:
        names = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
        forms = [node]
        if "into" in names:
            forms = [overload(node, into=into, is_awaited=self._is_awaited) for into in (True, False)]
        elif "default" in names:
            self._used["TypeVar"] = "typing"
            forms = [with_default(node, is_given=is_given) for is_given in (False, True)]
        for form in forms:
            if len(forms) > 1:
                self._used["overload"] = "typing"
                self._lines.append(f"{indent}@overload")
            self._signature(form, indent, source)

    def _signature(self, node: Function, indent: str, source: Source) -> None:
        arguments = node.args
        arguments.defaults = [_shown(value) for value in arguments.defaults]
        arguments.kw_defaults = [value and _shown(value) for value in arguments.kw_defaults]
        returns = ast.unparse(node.returns) if node.returns is not None else "None"
        word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        if returns.startswith("Asked["):
            returns, word = returns[len("Asked[") : -1], "async def" if self._is_awaited else "def"
        returns = returns.replace("Followed", FEEDS[self._is_awaited])
        origins = ORIGINS | source.origins
        head, tail = f"{word} {node.name}({ast.unparse(arguments)}", f") -> {returns}: ..."
        self._used |= {name: origins[name] for name in _names(arguments, ast.parse(returns)) if name in origins}
        self._lines += [f"{indent}@{ast.unparse(one)}" for one in node.decorator_list]
        # A line ends behind a comma, or the like, within the parentheses.
        whole = head.replace(" | ", "\0|\0").replace("'", '"') + tail.replace(" ", "\0")
        wrapper = textwrap.TextWrapper(WIDTH, indent, f"{indent}    ", break_long_words=False)
        self._lines += [line.replace("\0", " ") for line in wrapper.wrap(whole)]


def overload(node: Function, *, into: bool, is_awaited: bool) -> Function:
    """Return a method that reads into lists or, if `into`, into columns, with the type that it returns then."""
    only = copy.deepcopy(node)
    arguments = only.args
    for argument, default in [*zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]:
        if argument.arg in {"into", "as_text"}:
            at = arguments.kwonlyargs.index(argument)
            del arguments.kwonlyargs[at], arguments.kw_defaults[at]
            if into:
                is_choice = argument.arg == "into"
                argument.annotation = ast.parse('Literal["arrow"]' if is_choice else "bool", mode="eval").body
                arguments.kwonlyargs.append(argument)
                arguments.kw_defaults.append(None if is_choice else default)
    assert only.returns is not None
    lists, columns = SCANS[is_awaited]
    returns = ast.unparse(only.returns).replace("Scanned", columns if into else lists)
    returns = returns.replace("list[bytes | None] | Column", "Column" if into else "list[bytes | None]")
    only.returns = ast.parse(returns, mode="eval").body
    return only


def with_default(node: Function, *, is_given: bool) -> Function:
    """Return a read with a default in place of None, or without one."""
    only = copy.deepcopy(node)
    arguments = only.args
    assert only.returns is not None
    assert arguments.args[-1].arg == "default"
    arguments.defaults = []
    returns = ast.unparse(only.returns)
    if is_given:
        arguments.args[-1].annotation = ast.Name("_Default")
        only.returns = ast.parse(returns.replace(" | None", ""), mode="eval").body
    else:
        del arguments.args[-1]
        only.returns = ast.parse(returns.replace(" | _Default", ""), mode="eval").body
    return only


def _names(*nodes: ast.AST) -> set[str]:
    return {one.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)}


def _shown(default: ast.expr) -> ast.expr:
    return default if isinstance(default, ast.Constant) else ast.Constant(...)


def stubs() -> dict[Path, str]:
    """Return the text of each stub."""
    return {CLIENT / f"{form}.pyi": Stub(is_awaited=is_awaited).text() for form, is_awaited in FORMS.items()}


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
