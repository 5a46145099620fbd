"""Methods with their options, and fields of answers, as the reference names them, for tests that compare a node's."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

DOCS: Final = Path(__file__).parent.parent / "docs"


class DocumentedMethod(NamedTuple):
    """One method as shown to people."""

    name: str
    parameters: list[str]
    options: list[str]
    texts: str  # Its effect and its result.


def methods() -> list[DocumentedMethod]:
    """Return the methods that clients and operators may call."""
    return [
        DocumentedMethod(
            name,
            re.findall(r"\[.*\]|\{.*\}|[^,\s][^,]*", method.get("parameters", "")),
            method.get("options", "").split(),
            method["effect"] + method["result"],
        )
        for group in _read("methods.toml")["methods"].values()
        for name, method in group.items()
    ]


def explained_options() -> set[str]:
    """Return the names of the options that have a line in a table."""
    tables = _read("methods.toml")["options"].values()
    return {name for options in tables for names in options for name in names.split(", ")}


def fields_of(answer: str) -> frozenset[str]:
    """Return the names of the fields of an answer."""
    return frozenset(name for names in _read("answers.toml")[answer] for name in names.split(", "))


def _read(name: str) -> dict[str, dict[str, object]]:
    return tomllib.loads((DOCS / name).read_text(encoding="utf-8"))
