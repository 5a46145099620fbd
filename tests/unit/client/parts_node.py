"""Helpers of `test_parts.py` and `test_parts_slow.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.client.fake_node import Connection


def value_of(key: bytes) -> bytes | None:
    """Return the value of a key in these tests."""
    return None if key.endswith(b"7") else key * 2


class Node:
    """A node that answers `get_many` from its versions; an answer over `limit` bytes is TOO_LARGE.

    `switches` maps a number of answers to the versions from then on.
    """

    def __init__(self, limit: int = 1 << 20, switches: dict[int, list[str]] | None = None) -> None:
        self.limit = limit
        self.switches = switches or {}
        self.versions = ["v1"]
        self.asked: list[tuple[int, str | None]] = []

    def __call__(self, connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            message_id, method, params = request
            assert method == "get_many"
            result, error = self.answer(params[1], params[2] if len(params) > 2 else {})
            connection.answer(message_id, result, error)

    def answer(self, keys: list[bytes], options: dict[str, str]) -> tuple[object, object]:
        self.versions = self.switches.get(len(self.asked), self.versions)
        self.asked.append((len(keys), options.get("version")))
        version = options.get("version", self.versions[-1])
        if version not in self.versions:
            return None, ["UNKNOWN_VERSION", "gone", {"held": self.versions}]
        values = [value_of(key) for key in keys]
        size = sum(len(value) for value in values if value is not None)
        if size > self.limit:
            return None, ["TOO_LARGE", "the answer", {"limit": self.limit, "size": size}]
        return [values, version], None
