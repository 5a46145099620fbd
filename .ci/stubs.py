"""Write the stubs of the clients (`make stubs`): methods are written once, and each client's stub says which it awaits.

A source says `Asked[X]` for what a shell answers: `async def … -> X` under Trio and asyncio, and `def … -> X` in plain
threads.  A class of a client has the methods of its bases.
"""

from __future__ import annotations

import ast
import copy
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLIENTS = {"aio": True, "blocking": False, "trio_client": True}  # True: its methods are awaited.
# Methods by which modules of the client talk to each other.
INTERNAL = (("dispatcher", "DispatcherShell"), ("scan", "ScanShell"))
SHOWN = {
    f"__{word}__" for word in ("init", "enter", "exit", "await", "aenter", "aexit", "iter", "next", "aiter", "anext")
}
WIDTH = 120

# The types of a scan without columns and with them, by whether methods are awaited.
SCANS = {False: ("Iterator[Record]", "Batches"), True: ("Scan[Record]", "Scan[Records]")}
GENERIC = {"Scan": "(Generic[_Item])"}
ORIGINS = {
    "Generic": "typing",
    "Literal": "typing",
    "Iterator": "collections.abc",
    "Record": "gossipkv.client.reads",
    "Records": "gossipkv.client._client",
    "Batches": "gossipkv.client.pages",
    "Scan": "gossipkv.client.scan",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def path_of(module: str, suffix: str = ".py") -> Path:
    """Return the path of a module of the client, or of its stub."""
    return ROOT / "gossipkv" / "client" / f"{module}{suffix}"


class Source:
    """A module of the client: its classes and functions, and where its names come from."""

    def __init__(self, module: str) -> None:
        self.tree = ast.parse(path_of(module).read_text(encoding="utf-8"))
        self.nodes = {node.name: node for node in self.tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        self.origins: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                self.origins |= {alias.asname or alias.name: node.module or "" for alias in node.names}
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                is_variable = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "TypeVar"
                self.origins.setdefault(node.targets[0].id, "TypeVar" if is_variable else f"gossipkv.client.{module}")


class Stub:
    """The stub of one client."""

    def __init__(self, client: str, *, is_awaited: bool) -> None:
        self._is_awaited = is_awaited
        self._used: dict[str, str] = {}  # The names in signatures, and where they come from.
        self._internal = {
            node.name
            for module, name in INTERNAL
            for node in Source(module).nodes[name].body
            if isinstance(node, Function)
        }
        face = Source(client)
        self._shown: list[str] = next(
            ast.literal_eval(node.value)
            for node in face.tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        )
        self._lines: list[str] = []
        self._internal |= {"begin_within", "end"}
        for name in self._shown:
            node = face.nodes.get(name)
            if isinstance(node, ast.FunctionDef):
                self._lines.append("")
                self._function(node, "", face)
            else:
                self._class(name, face)

    def text(self) -> str:
        variables = sorted(name for name, origin in self._used.items() if origin == "TypeVar")
        imports: dict[str, list[str]] = {"typing": ["TypeVar"]} if variables else {}
        for name, origin in sorted(self._used.items()):
            if origin != "TypeVar" and name not in self._shown:
                imports.setdefault(origin, []).append(name)
        lines = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(imports.items())]
        lines.sort(key=lambda line: line.startswith("from gossipkv"))
        lines.insert(sum(not line.startswith("from gossipkv") for line in lines), "")
        lines += ["", *(f'{name} = TypeVar("{name}")' for name in variables)]
        return "\n".join(["# Made by .ci/stubs.py (`make stubs`).", "", *lines, *self._lines, ""])

    def _class(self, name: str, source: Source) -> None:
        members: dict[str, tuple[Function, Source]] = {}
        self._collect(name, source, members)
        generic = GENERIC.get(name, "")
        self._used |= {one: ORIGINS.get(one, "TypeVar") for one in _names(ast.parse(generic))}
        self._lines += ["", f"class {name}{generic}:"]
        if name in {"Dataset", "Table"}:
            self._lines.append("    name: str")
        if name != "Client":  # Only a client is made by its name.
            members.pop("__init__", None)
        for member, origin in members.values():
            self._function(member, "    ", origin)

    def _collect(self, name: str, source: Source, members: dict[str, tuple[Function, Source]]) -> None:
        node = source.nodes.get(name)
        if not isinstance(node, ast.ClassDef):
            module = source.origins[name].rpartition(".")[2]
            return self._collect(name, Source(module), members)
        for base in reversed(node.bases):
            said = ast.unparse(base)
            if said == "Protocol" or said.startswith("Generic["):
                continue
            module, _, inner = said.rpartition(".")
            if module in source.origins:
                self._collect(inner, Source(module), members)
            elif not module:
                self._collect(inner, source, members)
        for member in node.body:
            if not isinstance(member, Function) or member.name in self._internal:
                continue
            if member.name in SHOWN or not member.name.startswith("_"):
                members.pop(member.name, None)
                members[member.name] = member, source
        return None

    def _function(self, node: Function, indent: str, source: Source) -> None:
        if not any(argument.arg == "into" for argument in node.args.kwonlyargs):
            return self._signature(node, indent, source)
        self._used["overload"] = "typing"
        for into in (True, False):
            self._lines.append(f"{indent}@overload")
            self._signature(overload(node, into=into, is_awaited=self._is_awaited), indent, source)
        return None

    def _signature(self, node: Function, indent: str, source: Source) -> None:
        arguments = node.args
        arguments.defaults = [_shown(value) for value in arguments.defaults]
        arguments.kw_defaults = [value and _shown(value) for value in arguments.kw_defaults]
        returns = ast.unparse(node.returns) if node.returns is not None else "None"
        word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        if returns.startswith("Asked["):
            returns, word = returns[len("Asked[") : -1], "async def" if self._is_awaited else "def"
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


def _names(*nodes: ast.AST) -> set[str]:
    return {one.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)}


def _shown(default: ast.expr) -> ast.expr:
    return default if isinstance(default, ast.Constant) else ast.Constant(...)


def stubs() -> dict[Path, str]:
    """Return the text of each client's stub."""
    return {
        path_of(client, ".pyi"): Stub(client, is_awaited=is_awaited).text()
        for client, is_awaited in CLIENTS.items()
        if path_of(client).exists()
    }


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
