"""A versioned map and its operations on plain dictionaries; every outcome is kept for ever."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

LIFE = 64
KEPT = 4096
SEQUENCES = 1 << 48


class Wanted(NamedTuple):
    """An operation, and all effects of its function."""

    id: bytes
    base: int
    puts: dict[bytes, bytes | None]
    looks: list[bytes]
    touches_all: bool = False
    refuses: bool = False


@dataclass
class Model:
    """The map after some transactions."""

    entries: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)  # Version and record.
    version: int = 0
    config: int = 0
    outcomes: dict[bytes, tuple[int, str]] = field(default_factory=dict)  # Config id and outcome.
    judged: dict[bytes, Wanted] = field(default_factory=dict)  # The operations of those outcomes.
    is_changed: bool = False  # By the current transaction.

    def judge(self, operations: list[Wanted], config: int) -> list[set[str]]:
        """Apply one transaction; return the permitted outcomes of each operation."""
        # After a force the map has its generation, also if nothing is recorded.
        self.config = before = config // SEQUENCES * SEQUENCES + self.config % SEQUENCES
        self.is_changed = False
        return [self._judge(one, before, config) for one in operations]

    def _judge(self, one: Wanted, before: int, config: int) -> set[str]:
        recorded = self.outcomes.get(one.id)
        is_another = recorded is not None and self.judged[one.id][2:] != one[2:]
        if recorded is not None and recorded[0] == config:
            return {"REFUSED" if is_another else recorded[1]}
        is_over = one.base // SEQUENCES != config // SEQUENCES or config % SEQUENCES > one.base % SEQUENCES + LIFE
        if recorded is not None or one.base >= config or is_over:
            told = self.ask(one.id, one.base, config - 1)
            return {"REFUSED"} | (told & {"UNKNOWN"}) if is_another and told != {"UNKNOWN"} else told
        touched = one.looks if one.refuses else [*one.looks, *one.puts]  # A refusal reads no more than its `looks`.
        versions = [self.entries[key][0] for key in touched if key in self.entries] + [self.version]
        if one.touches_all and not one.refuses:
            versions.append(config if self.is_changed else before)
        if not one.refuses and not one.puts and not one.touches_all:
            answer = "DONE"
        elif max(versions) > one.base:
            answer = "CONFLICT"
        else:
            answer = "REFUSED" if one.refuses else "DONE"
        if answer == "DONE":
            self._do(one, config)
        self.outcomes[one.id] = (config, answer)
        self.judged[one.id] = one
        self.config = config
        return {answer}

    def _do(self, one: Wanted, config: int) -> None:
        for key, record in one.puts.items():
            self.is_changed = self.is_changed or record is not None or key in self.entries
            if record is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = (config, record)
        if one.touches_all:
            self.version, self.is_changed = config, True

    def ask(self, operation: bytes, base: int, head: int) -> set[str]:
        head_sequence, base_sequence = head % SEQUENCES, base % SEQUENCES
        recorded = self.outcomes.get(operation)
        if recorded is not None and base < recorded[0] <= base + LIFE:
            is_kept = head_sequence <= recorded[0] % SEQUENCES + KEPT
            return {recorded[1]} if is_kept else {recorded[1], "UNKNOWN"}
        is_over = head // SEQUENCES > base // SEQUENCES or head_sequence + 1 > base_sequence + LIFE
        if head > base and is_over and head_sequence <= base_sequence + 1 + KEPT:
            return {"REFUSED"}
        return {"UNKNOWN"}
