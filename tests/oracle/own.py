"""Batches of local writes in the oracle's form: clocks are dictionaries, and a batch is a dictionary by replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.oracle.entry import Clock


def state(time: int, config: int, after: Clock, before: Clock) -> bytes:
    """Return the value of a STATE."""
    numbers = [
        time,
        config,
        *(number for clock in (after, before) for entry in sorted(clock.items()) for number in entry),
    ]
    return b"".join(number.to_bytes(8, "big") for number in numbers)


def counted(requests: Iterable[Mapping[int, Sequence[bytes]]]) -> list[tuple[dict[int, int], dict[int, list[bytes]]]]:
    """Return after each request the counters by replica, and the keys of the batch that has all requests."""
    counters: dict[int, int] = {}
    keys: dict[int, list[bytes]] = {}
    found = []
    for request in requests:
        for replica, written in request.items():
            keys[replica] = [*keys.get(replica, []), *written]
            counters[replica] = counters.get(replica, 0) + len(written)
        found.append(({replica: counters[replica] for replica in request}, dict(keys)))
    return found
