"""docs/operators/troubleshooting.md quotes errors of the source, and each alert names an action."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from tests.ci.tidy.source import ROOT, sources

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (ROOT / "docs" / "operators" / "troubleshooting.md").read_text(encoding="utf-8")
ALERTS = (ROOT / "docs" / "operators" / "alerts.yml").read_text(encoding="utf-8")
WILD = "…"
LITERAL = re.compile(r'f?"((?:[^"\\\n]|\\.)*)"')


def rows(heading: str) -> list[str]:
    """Return the text in backticks in the first cells of the tables below headings of that kind."""
    found = []
    for table in re.findall(rf"(?m)^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE):
        found += [re.fullmatch(r"\| `(.*?)` \|.*", row)[1] for row in table.splitlines()]
    return found


def said(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module except its docstrings, with `…` for replaced fields."""
    documentation = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if node in documentation:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else WILD for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def texts() -> list[str]:
    """Return all texts of the package; from Cython, single literals, since its f-strings have no parser here."""
    found = []
    for source in sources(ROOT, "gossipkv", "src_ext"):
        if source.is_cython:
            found += [re.sub(r"\{[^{}]*\}", WILD, text) for text in LITERAL.findall(source.text)]
        else:
            found += said(ast.parse(source.text))
    return found


def unsaid(quotes: list[str], known: list[str]) -> list[str]:
    """Return the quotes that occur in no text."""
    whole = "\n".join(known)
    return [quote for quote in quotes if quote not in whole]


def test_each_error_that_is_quoted_can_be_said() -> None:
    """Each quote of the page occurs literally in the source."""
    quotes = rows("it says")
    assert len(quotes) > 30
    assert len(set(quotes)) == len(quotes)
    assert all(len(quote.replace(WILD, "")) >= 12 for quote in quotes), "too short to be told from others"
    assert unsaid(quotes, texts()) == []


def test_a_quote_that_nobody_says_is_seen() -> None:
    """A changed text is reported; other words in the gaps are not."""
    tree = ast.parse(
        '"cannot hear on"\nsay(f"cannot listen on {where}: {reason}; choose " f"another with {flag}", "plain")'
    )
    known = list(said(tree))
    assert unsaid(["listen on …: …; choose another", "plain", "cannot hear on …"], known) == ["cannot hear on …"]


def test_each_alert_names_an_action() -> None:
    alerts = re.split(r"- alert: ", ALERTS)[1:]
    assert len(alerts) > 20
    assert [alert.split()[0] for alert in alerts if not re.search(r"\n\s+action: \S", alert)] == []
