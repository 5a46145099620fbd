"""Placement by the letter of its rules, one partition at a time: plain sets and lists, and nothing from the package."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, groupby, product
from math import ceil, floor
from typing import TYPE_CHECKING

import msgpack

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


def share(ids: Iterable[str], mine: str, partitions: int, replication: int) -> set[int]:
    """Return the partitions of one id by seed 000: list each partition R times; index i goes to the i mod n-th id."""
    ring = sorted(set(ids))
    written = [partition for partition in range(partitions) for _ in range(replication)]
    return {partition for index, partition in enumerate(written) if ring and ring[index % len(ring)] == mine}


def in_at_least(count: int, partitions: int, sets: Sequence[Collection[int]]) -> set[int]:
    return {partition for partition in range(partitions) if sum(partition in some for some in sets) >= count}


def rank(name: str, states: Mapping[str, int], slow: Collection[str]) -> tuple[bool, int]:
    """Return the order in which holders are asked: smaller first, equal ones in any order."""
    return name in slow, states[name]


def forms(some: Collection[int], partitions: int) -> tuple[bytes, list[int]]:
    """Return the bitmap of these partitions and their runs, in turn absent and present, ending with present."""
    bits = [number in some for number in range(partitions)]
    grouped = [(present, len(list(run))) for present, run in groupby(bits)]
    runs = [0] * (grouped[0][0]) + [length for _, length in grouped[: len(grouped) - (not grouped[-1][0])]]
    bitmap = bytes(sum(1 << bit for bit, has in enumerate(bits[at : at + 8]) if has) for at in range(0, partitions, 8))
    return bitmap.rstrip(b"\0"), runs


def partitions_of(pieces: Iterable[bytes], field: str) -> set[int]:
    """Read one field of sound pieces: a bitmap bit by bit, runs one by one."""
    found = set()
    for piece in pieces:
        said = msgpack.unpackb(piece)
        at, told = said["first"], said[field]
        if isinstance(told, bytes):
            found |= {at + 8 * place + bit for place, byte in enumerate(told) for bit in range(8) if byte & 1 << bit}
        else:
            for number, length in enumerate(told):
                if number % 2:
                    found |= set(range(at, at + length))
                at += length
    return found


def forms_of_partition(isolation: Mapping[bytes, object], replication: int) -> list[frozenset[bytes]]:
    """Return all sets of nodes that may hold a partition: of the right size, and as far apart as possible."""
    sets = [frozenset(some) for some in combinations(sorted(isolation), min(replication, len(isolation)))]

    def crowd(some: frozenset[bytes]) -> int:
        return sum(isolation[one] == isolation[other] for one in some for other in some)

    return [some for some in sets if crowd(some) == min(map(crowd, sets))]


DEALT = 4_000


def ideal_loads(forms: Sequence[Collection[bytes]], weights: Mapping[bytes, int]) -> dict[bytes, float]:
    """Return each node's share of partitions: deal very many, each to the nodes with the least load per weight.

    This minimizes the sum of load² / weight (Frank and Wolfe), and is right to about 1 / 1,000.
    """
    load = dict.fromkeys(weights, 0)
    for _ in range(DEALT):
        for node in min(forms, key=lambda some: sum((load[node] + 0.5) / weights[node] for node in some), default=()):
            load[node] += 1
    return {node: held / DEALT for node, held in load.items()}


def fewest_moves(
    forms: Sequence[Collection[bytes]], ideal: Mapping[bytes, float], now: Sequence[Collection[bytes]]
) -> int:
    """Try all maps; return the fewest changed slots of a map with the ideal loads, rounded down or up."""
    bounds = [(node, floor(share * len(now) + 0.02), ceil(share * len(now) - 0.02)) for node, share in ideal.items()]
    best = None
    for drawn in product(forms, repeat=len(now)):
        load = Counter(node for some in drawn for node in some)
        if all(low <= load[node] <= high for node, low, high in bounds):
            moves = sum(len(set(some) - set(was)) for some, was in zip(drawn, now, strict=True))
            best = moves if best is None else min(best, moves)
    assert best is not None, "no map has its loads"
    return best
