"""Invented decisions about tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.errors import UnknownDatabase

if TYPE_CHECKING:
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value


class MadeUpTables:
    def __init__(self) -> None:
        self.methods = {b"metadata_look": lambda _arguments: b"nothing"}
        self.asked: list[object] = []
        self.shut = False

    def tell_seen(self, node: bytes) -> bytes:
        return b"of " + node

    def hear(self, node: bytes, word: bytes) -> None:
        self.asked.append((node, word))

    def has(self, name: str) -> bool:
        return name == "orders"

    def read(self, _name: str, arguments: Arguments) -> Value:
        return [arguments.text("table"), b"token"]

    def tables(self) -> list[Value]:
        return [{"name": "orders", "kind": "hash"}]

    def names(self) -> set[str]:
        return {str(table["name"]) for table in self.tables()}

    async def status(self, name: str | None) -> dict[str, dict[str, Value]]:
        """Report an ordinary table, and a table with a dataset's name."""
        told: dict[str, dict[str, Value]] = {"orders": {"kind": "hash"}, "db": {"kind": "hash"}}
        return {one: entry for one, entry in told.items() if name in {None, one}}

    def partition_map(self, arguments: Arguments) -> Value:
        name, options = arguments.text("database"), arguments.options("start", "limit")
        if name != "orders":
            raise UnknownDatabase(f"there is no table {name}")
        self.asked.append((options.blob("start"), options.number("limit")))
        return {"kind": "hash", "table": "ab", "config": 1, "partitions": [], "next": None}
