"""A fake node with one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.client.fake_node import Connection


class TableNode:
    """A node with one table that records its requests.  `fails` maps the number of a request to its error."""

    def __init__(self, fails: dict[int, list[object]] | None = None, most: int = 1 << 30) -> None:
        self.records: dict[bytes, bytes] = {}
        self.expiries: dict[bytes, dict[str, object]] = {}
        self.asked: list[tuple[str, list[object]]] = []
        self.fails = fails or {}
        self.most = most

    def __call__(self, connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            message_id, method, params = request
            self.asked.append((method, params[1:]))
            if (error := self.fails.get(len(self.asked))) is not None:
                connection.answer(message_id, None, error)
            elif method == "get_many" and len(params[1]) > self.most:
                connection.answer(message_id, None, ["TOO_LARGE", "the answer", {}])
            else:
                connection.answer(message_id, getattr(self, method)(*params[1:]))

    def create_table(self, options: dict[str, object]) -> object:
        return {"table": "ab" * 16, "config": 1}

    def get(self, key: bytes, options: dict[str, object] | None = None) -> object:
        if (options or {}).get("explain"):
            return [self.records.get(key), b"token", {"node": "n1", **self.expiries.get(key, {})}]
        return [self.records.get(key), b"token"]

    def get_many(self, keys: list[bytes], options: dict[str, object] | None = None) -> object:
        return [[self.records.get(key) for key in keys], b"token"]

    def scan(self, options: dict[str, object] | None = None) -> object:
        options = options or {}
        begin = options.get("cursor", 0)
        found = [
            [key, value]
            for key, value in sorted(self.records.items())
            if key >= options.get("start", b"") and key.startswith(options.get("prefix", b""))
        ]
        return [found[begin : begin + 2], begin + 2 if len(found) > begin + 2 else None, b"token"]

    def changes(self, options: dict[str, object]) -> object:
        """Give the records behind the number in the token, two at a time; with the limit 0, only the token."""
        begin = int(options.get("token", b"0"))
        if options.get("limit") == 0:
            return [[], b"%d" % begin]
        found = [[key, value, None] for key, value in sorted(self.records.items())][begin : begin + 2]
        return [found, b"%d" % (begin + len(found))]

    def cancel(self) -> object:
        return None

    def put(self, key: bytes, value: bytes, options: dict[str, object]) -> object:
        self.records[key] = value
        self.expiries[key] = {name: at for name, at in options.items() if name == "expires_at"}
        return b""

    def delete(self, key: bytes, options: dict[str, object]) -> object:
        self.records.pop(key, None)
        return b""

    def put_many(self, records: list[list[bytes]], options: dict[str, object]) -> object:
        self.records.update((key, value) for key, value, *_ in records)
        self.expiries.update((key, {"expires_at": own[0]}) for key, _, *own in records if own)
        return b""

    def delete_many(self, keys: list[bytes], options: dict[str, object]) -> object:
        for key in keys:
            self.records.pop(key, None)
        return b""

    def delete_range(self, bounds: dict[str, bytes], options: dict[str, object]) -> object:
        """Delete two records; the cursor is the next key."""
        end, first = bounds.get("end"), max(bounds.get("start", b""), options.get("cursor", b""))
        found = [
            key
            for key in sorted(self.records)
            if key >= first and (end is None or key < end) and key.startswith(bounds.get("prefix", b""))
        ]
        for key in found[:2]:
            del self.records[key]
        return [len(found[:2]), found[2] if found[2:] else None, b""]
