"""Rename modules, classes, functions and constants over the whole tree, by the tables beside this script.

`modules.txt` has `old.module new.module`; a `*` at the end of the old name stands for a folder of tests.  `names.txt`
has `old new` for names that mean one thing in the whole tree, and `module:old new` for names that mean another thing
in another module: those change in that module and wherever it is imported.  A rename that would meet another use of
the new name in a file is refused, so the script changes meaning nowhere.  Run it from the project's root.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import subprocess
import sys
import tokenize
from pathlib import Path

HERE = Path(__file__).parent
PYTHON = (".py", ".pyx", ".pxd", ".pyi")
IMPORT = re.compile(r"from ([\w.]+) c?import (\([^)]*\)|[^\n]*)")
PROSE = (".md", ".toml", ".txt", ".yml", ".yaml", ".html", ".h", ".cfg", ".json")


def table(name: str) -> dict[str, str]:
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines if line.strip() and not line.startswith("#"))


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.split()
    return [Path(name) for name in listed if Path(name).suffix in PYTHON + PROSE and not name.startswith(".ci/renames")]


def dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removeprefix("src_ext.").removesuffix(".__init__")


def tokens(source: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, IndentationError):
        return []


def with_names(source: str, names: dict[str, str], path: Path, after: str | None = None) -> str:
    """The source with its NAME tokens renamed; after a dot too, or, with `after`, only after that name and a dot."""
    lines = source.splitlines(keepends=True)
    found = tokens(source)
    edits = []
    for index, token in enumerate(found):
        if token.type != tokenize.NAME or token.string not in names:
            continue
        before = found[index - 1].string if index else ""
        if after is not None and not (before == "." and found[index - 2].string == after):
            continue
        edits.append((token.start, token.end, names[token.string]))
    for (row, start), (_, end), new in reversed(edits):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + new + line[end:]
    return "".join(lines)


def in_ticks(text: str, names: dict[str, str]) -> str:
    """Prose with the names renamed where they stand in backticks, alone, with a dot or with brackets."""

    def renamed(match: re.Match[str]) -> str:
        return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), match[0])

    return re.sub(r"`[^`\n]{1,100}`", renamed, text)


def comments_in_ticks(source: str, names: dict[str, str]) -> str:
    lines = source.splitlines(keepends=True)
    for token in reversed(tokens(source)):
        if token.type not in {tokenize.COMMENT, tokenize.STRING} or "`" not in token.string:
            continue
        new = in_ticks(token.string, names)
        if new == token.string:
            continue
        (row, start), (last, end) = token.start, token.end
        joined = "".join(lines[row - 1 : last])
        tail = len(lines[last - 1]) - end
        lines[row - 1 : last] = (joined[:start] + new + joined[len(joined) - tail :]).splitlines(keepends=True)
    return "".join(lines)


def with_modules(source: str, modules: dict[str, str], path: Path) -> str:
    """The source with its imports from moved modules, and the local names that these had, changed."""
    if path.suffix in {".py", ".pyi"}:
        source = imports_moved(source, modules, path)
        lines = source.splitlines(keepends=True)
        source = "".join(
            line if re.match(r"\s*from [\w.]+ import", line) else in_prose(line, modules) for line in lines
        )
        return source
    return in_prose(source, modules)


def in_prose(text: str, modules: dict[str, str]) -> str:
    """Text with the dotted names of modules, and the paths of their files, changed; each once."""
    paths = {old.replace(".", "/") + ".py": new.replace(".", "/") + ".py" for old, new in modules.items()}
    short = {old.removeprefix("gossipkv/"): new.removeprefix("gossipkv/") for old, new in paths.items()}
    for new in (dict(modules), paths | short):
        names = "|".join(map(re.escape, sorted(new, key=len, reverse=True)))
        text = re.sub(rf"(?<![\w.])(?:{names})(?!\w)", lambda found: new[found[0]], text)  # noqa: B023
    return text


def imports_moved(source: str, modules: dict[str, str], path: Path) -> str:
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    renamed: dict[str, str] = {}
    for node in sorted(ast.walk(tree), key=lambda node: -getattr(node, "lineno", 0)):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        moved: dict[str, list[str]] = {}
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            bound = f" as {alias.asname}" if alias.asname else ""
            if full in modules:
                package, _, name = modules[full].rpartition(".")
                if name != alias.name and not bound:
                    renamed[alias.name] = name
                moved.setdefault(package, []).append(name + bound)
            else:
                moved.setdefault(modules.get(node.module, node.module), []).append(alias.name + bound)
        if set(moved) == {node.module}:
            continue
        assert node.end_lineno is not None
        tail = re.search(r"#.*", lines[node.end_lineno - 1])
        indent = " " * node.col_offset
        said = [
            f"{indent}from {package} import {', '.join(names)}{'  ' + tail[0] if tail else ''}\n"
            for package, names in moved.items()
        ]
        lines[node.lineno - 1 : node.end_lineno] = said
    source = "".join(lines)
    for old, new in renamed.items():
        if len(re.findall(rf"\b{new}\b", source)) > 1 or keyword.iskeyword(new):
            print(f"{path}: the module {old} becomes {new}, which stands there already: imported as {old}")
            source = re.sub(
                rf"(from [\w.]+ import (?:[\w ,]*, )?){new}\b(?! as)", rf"\1{new} as {old}", source, count=1
            )
            continue
        source = bare_names(source, old, new)
    return source


def bare_names(source: str, old: str, new: str) -> str:
    lines = source.splitlines(keepends=True)
    found = tokens(source)
    for index in range(len(found) - 1, -1, -1):
        token = found[index]
        if (
            token.type == tokenize.NAME
            and token.string == old
            and (not index or found[index - 1].string != ".")
            and found[index + 1].string != "="
        ):
            (row, start), (_, end) = token.start, token.end
            lines[row - 1] = lines[row - 1][:start] + new + lines[row - 1][end:]
    return "".join(lines)


def tests_of(modules: dict[str, str]) -> dict[str, str]:
    """The unit tests of modules that move, and where to: beside each other as the modules are."""
    moved = {}
    for old, new in sorted(modules.items(), key=lambda pair: len(pair[0])):
        folder, _, base = old.partition(".")[2].replace(".", "/").rpartition("/")
        place, _, name = new.partition(".")[2].replace(".", "/").rpartition("/")
        for path in Path("tests/unit", folder).glob(f"test_{base}*.py"):
            rest = path.stem.removeprefix(f"test_{base}")
            if not rest or rest.startswith("_"):
                moved[dotted(path)] = f"tests.unit.{place.replace('/', '.')}.test_{name}{rest}"
    return moved


def move_modules(modules: dict[str, str]) -> None:
    modules = modules | tests_of(modules)
    # Through names that nobody has: some modules take the name of a folder, or of another that moves.
    for old in modules:
        for suffix in (".py", ".pyi"):
            path = Path(old.replace(".", "/") + suffix)
            if path.exists():
                subprocess.run(["git", "mv", str(path), f"{path}.moved"], check=True)
    for old, new in modules.items():
        for suffix in (".py", ".pyi"):
            path = Path(old.replace(".", "/") + suffix + ".moved")
            if path.exists():
                place = Path(new.replace(".", "/") + suffix)
                place.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["git", "mv", str(path), str(place)], check=True)
    for path in tracked():
        source = path.read_text(encoding="utf-8")
        new = with_modules(source, modules, path) if path.suffix in PYTHON else in_prose(source, modules)
        if new != source:
            path.write_text(new, encoding="utf-8")


def rename(names: dict[str, str]) -> None:
    """Rename constants in all text, and classes of one module in the code that imports them."""
    constants = {old: new for old, new in names.items() if ":" not in old}
    of_modules: dict[str, dict[str, str]] = {}
    for old, new in names.items():
        if ":" in old:
            module, _, name = old.partition(":")
            of_modules.setdefault(module, {})[name] = new
    for path in tracked():
        source = path.read_text(encoding="utf-8")
        new = re.sub(r"\w+", lambda word: constants.get(word[0], word[0]), source)
        if path.suffix in PYTHON:
            new = with_classes(new, of_modules, path)
        if new != source:
            path.write_text(new, encoding="utf-8")


def with_classes(source: str, of_modules: dict[str, dict[str, str]], path: Path) -> str:
    bare: dict[str, str] = {}
    dotted_names: dict[str, dict[str, str]] = {}
    for module, inner in of_modules.items():
        if dotted(path) == module:
            bare |= inner
        if module in source:
            bare |= imported_from(source, module, inner)
        package, _, local = module.rpartition(".")
        if re.search(rf"from {re.escape(package)} c?import (?:\([^)]*|[^\n(]*)\b{local}\b", source):
            dotted_names[local] = inner
    if path.parts[:3] == ("tests", "nightly", "mutants"):
        source = in_mutants(source, of_modules)
    if not bare and not dotted_names:
        return source
    imports: set[int] = set()

    def in_import(match: re.Match[str]) -> str:
        inner = of_modules.get(match[1], {})
        return match[0][: match.start(2) - match.start()] + re.sub(r"\w+", lambda word: inner.get(word[0], word[0]), match[2])

    source = IMPORT.sub(in_import, source)
    for match in IMPORT.finditer(source):
        first = source.count("\n", 0, match.start()) + 1
        imports |= set(range(first, first + match[0].count("\n") + 1))
    lines = source.splitlines(keepends=True)
    found = tokens(source)
    edits: list[tuple[int, int, int, str]] = []
    for index, token in enumerate(found):
        before = found[index - 1].string if index else ""
        row, start = token.start
        if row in imports:
            continue
        if token.type == tokenize.NAME:
            holder = dotted_names.get(found[index - 2].string, {}) if before == "." and index > 1 else bare
            if token.string in holder:
                edits.append((row, start, token.end[1], holder[token.string]))
        elif token.type in {tokenize.STRING, tokenize.COMMENT} and row == token.end[0]:
            names = bare | {name: to for inner in dotted_names.values() for name, to in inner.items()}
            cast = before == "(" and found[index - 2].string in {"cast", "TypeVar"}
            new = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), token.string) if cast else in_ticks(token.string, bare)
            if new != token.string:
                edits.append((row, start, token.end[1], new))
    for row, start, end, new in reversed(edits):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + new + line[end:]
    source = "".join(lines)
    return comments_in_ticks(source, bare)


def in_mutants(source: str, of_modules: dict[str, dict[str, str]]) -> str:
    """The planted bugs quote the code of the file that each of them names: of that file, or imported there."""
    lines = source.splitlines(keepends=True)
    found = tokens(source)
    edits = []
    names: dict[str, str] = {}
    for token in found:
        if token.type != tokenize.STRING:
            continue
        quoted = re.fullmatch(r"""["']((?:src_ext/)?gossipkv/[\w/]+\.(?:py|pyx|pxd))["']""", token.string)
        if quoted:
            path = Path(quoted[1])
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            names = dict(of_modules.get(dotted(path), {}))
            for module, inner in of_modules.items():
                if module in text:
                    names |= imported_from(text, module, inner)
        elif names and token.start[0] == token.end[0]:
            new = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), token.string)
            if new != token.string:
                edits.append((*token.start, token.end[1], new))
    for row, start, end, new in reversed(edits):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + new + line[end:]
    return "".join(lines)


def imported_from(source: str, module: str, inner: dict[str, str]) -> dict[str, str]:
    """Those of a module's renamed classes that a source has under their own names."""
    found: dict[str, str] = {}
    for match in IMPORT.finditer(source):
        if match[1] == module:
            for name, bound in re.findall(r"(\w+)(?: as (\w+))?", match[2]):
                if name in inner and not bound:
                    found[name] = inner[name]
    return found


if __name__ == "__main__":
    for step in sys.argv[1:]:
        move_modules(table("modules.txt")) if step == "modules" else rename(table("names.txt"))
