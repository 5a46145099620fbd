"""Type checkers see the public names of the clients, and refuse a text in place of several keys."""

from __future__ import annotations

from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[3]
PROGRAM = """
from collections.abc import Iterable
import gossipkv

async def awaited(client: gossipkv.Client, other: gossipkv.aio.Client, keys: Iterable[bytes]) -> None:
    geo, carts = client.dataset("geo"), other.table("carts")
    await geo.get_many(["a"])
    await geo.get_many(keys)
    await geo.get_many(key for key in ("a", "b"))
    await carts.get_many({"a": 1})
    value: bytes = await geo.get("a", b"")
    value = await carts["a"]
    is_there: bool = await carts.has("k")
    await geo.get_many("abc")  # wrong
    await carts.delete_many(b"abc")  # wrong
    "k" in geo  # wrong

def plain(client: gossipkv.blocking.Client) -> None:
    geo = client.dataset("geo")
    is_there: bool = "k" in geo
    either: bytes | int = geo.get("k", 7)
    value: bytes = geo.get("k")  # wrong
    value = geo["k"]
    [*geo.iter_get(["a"])]
    geo.iter_get("abc")  # wrong
    geo.get_many("abc", into="arrow")  # wrong
"""


def test_what_a_checker_says(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    said, failed, _ = api.run(["--config-file", str(ROOT / "pyproject.toml"), str(program)])
    assert not failed, failed
    wrong = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")]
    assert [int(line.split(":")[1]) for line in said.splitlines() if ": error: " in line] == wrong, said
