"""docs/operators/troubleshooting.md quotes errors that the source can say, and has all codes and alerts."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gossipkv import errors
from tests.ci.tidy.source import ROOT, sources

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (ROOT / "docs" / "operators" / "troubleshooting.md").read_text(encoding="utf-8")
ALERTS = (ROOT / "docs" / "operators" / "alerts.yml").read_text(encoding="utf-8")
WILD = "…"
LITERAL = re.compile(r'f?"((?:[^"\\\n]|\\.)*)"')


def rows(heading: str) -> list[str]:
    """The first cells of the tables below headings of that kind: what stands in backticks there."""
    found = []
    for table in re.findall(rf"(?m)^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE):
        found += [re.fullmatch(r"\| `(.*?)` \|.*", row)[1] for row in table.splitlines()]
    return found


def said(tree: ast.AST) -> Iterator[str]:
    """The texts of a module but for its docstrings, with `…` for what is put into them."""
    documentation = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if node in documentation:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else WILD for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def texts() -> list[str]:
    """Whatever the package can say; of Cython single literals, whose f-strings nobody parses for us."""
    found = []
    for source in sources(ROOT, "gossipkv", "src_ext"):
        if source.is_cython:
            found += [re.sub(r"\{[^{}]*\}", WILD, text) for text in LITERAL.findall(source.text)]
        else:
            found += said(ast.parse(source.text))
    return found


def unsaid(quotes: list[str], known: list[str]) -> list[str]:
    """The quotes that are part of no text."""
    whole = "\n".join(known)
    return [quote for quote in quotes if quote not in whole]


def test_each_error_that_is_quoted_can_be_said() -> None:
    """What a reader looks for on the page stands in the source as it stands there."""
    quotes = rows("it says")
    assert len(quotes) > 60
    assert len(set(quotes)) == len(quotes)
    assert all(len(quote.replace(WILD, "")) >= 12 for quote in quotes), "too short to be told from others"
    assert unsaid(quotes, texts()) == []


def test_a_quote_that_nobody_says_is_seen() -> None:
    """A text that was changed is reported; one with other words in its gaps is not."""
    tree = ast.parse(
        '"cannot hear on"\nsay(f"cannot listen on {where}: {reason}; choose " f"another with {flag}", "plain")'
    )
    known = list(said(tree))
    assert unsaid(["listen on …: …; choose another", "plain", "cannot hear on …"], known) == ["cannot hear on …"]


def test_each_code_has_an_entry() -> None:
    """All codes that go over the wire, and no other."""
    kinds = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.GossipKVError)]
    assert sorted(rows("code")) == sorted({kind.code for kind in kinds})


def test_each_alert_has_an_entry() -> None:
    """All alerts, in their order."""
    assert rows("alert") == re.findall(r"- alert: (\w+)", ALERTS)
