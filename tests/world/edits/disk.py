"""A disk with a durable part and an appended one, of which a crash loses a suffix."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    Records = Mapping[bytes, bytes | None]


@final
class Disk:
    """Batches become durable in the order of their appends, each as a whole."""

    def __init__(self) -> None:
        self.durable: dict[bytes, bytes] = {}
        self.appended: list[tuple[Records, int]] = []

    def append(self, records: Records, serial: int = 0) -> None:
        """Append a batch; None deletes a key. `serial`: of the acceptor's record among them; 0: there is none."""
        if records:
            self.appended.append((records, serial))

    def sync(self, count: int) -> int:
        """Sync the first batches; return the last serial among them, or 0."""
        batches, self.appended = self.appended[:count], self.appended[count:]
        for records, _ in batches:
            for key, record in records.items():
                if record is None:
                    self.durable.pop(key, None)
                else:
                    self.durable[key] = record
        return max([serial for _, serial in batches], default=0)

    def crash(self, kept: int) -> None:
        """Lose the appended batches but the first ones."""
        self.sync(kept)
        self.appended = []

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the durable records with a prefix, without it, in order."""
        return sorted((key[len(prefix) :], record) for key, record in self.durable.items() if key.startswith(prefix))
