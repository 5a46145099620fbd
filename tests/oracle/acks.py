"""The counters that have reached a level, from dictionaries: hosts by slot, and what each has told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Told:
    """A host's last status: its counter and config, and the counters between which it merged entries, if incomplete."""

    counter: int
    config: int
    span: tuple[int, int] | None = None


def reached(level: str, slots: int, seats: list[list[int]], told: dict[int, Told], behind: int = 0) -> int:
    """Return the last counter at the level under config 1; `seats`: counting hosts, by slot that can confirm."""
    counters = sorted((min(counter(told.get(host), behind) for host in hosts) for hosts in seats), reverse=True)
    needed = {"one": 1, "majority": slots // 2 + 1, "all": slots}[level]
    return counters[needed - 1] if len(counters) >= needed else 0


def counter(told: Told | None, behind: int) -> int:
    if told is None or told.config != 1:
        return 0
    is_within = told.span is not None and told.span[0] <= behind
    return max(told.counter, told.span[1]) if told.span is not None and is_within else told.counter
