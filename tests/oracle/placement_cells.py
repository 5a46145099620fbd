"""The cells of the placement map, computed one partition after the other."""

from __future__ import annotations

# Missing, building, disagreeing, under-replicated, on a dead node, ready. A partition that is being built is unreadable
# everywhere in the row of all nodes; in the row of a node it is coming, which is better than files that differ.
OF_ALL = "mbdur"
OF_NODE = "dbugr"


def band(partitions: int, most: int) -> int:
    """Return the partitions per cell: the fewest with which there are at most `most` cells."""
    size = 1
    while -(-partitions // size) > most:
        size += 1
    return size


def lacking(few, owners) -> set[int]:
    """Return the under-replicated partitions of which no live node builds a further copy."""
    live = [owner for owner in owners if owner["state"] != "dead"]
    return {partition for partition in few if not any(partition in owner["building"] for owner in live)}


def node_letter(partition, owner, few, disputed) -> str:
    """Return the letter of a partition in the row of a node: `owner` has `state`, `ready`, `building`."""
    if owner["state"] == "dead":
        return "g" if partition in owner["ready"] else "."
    if partition in owner["ready"] and partition in disputed:
        return "d"
    if partition in owner["building"]:
        return "b"
    if partition in owner["ready"]:
        return "u" if partition in few else "r"
    return "."


def all_letter(partition, owners, few, disputed) -> str:
    """Return the letter of a partition in the row of all nodes together."""
    live = [owner for owner in owners if owner["state"] != "dead"]
    if not any(partition in owner["ready"] for owner in live):
        return "b" if any(partition in owner["building"] for owner in live) else "m"
    if partition in disputed:
        return "d"
    return "u" if partition in few else "r"


def cells(letters: str, size: int, worst_first: str) -> str:
    """Fold a row of partitions into cells: the worst letter of each; `p` if only some are ready."""
    folded = []
    for first in range(0, len(letters), size):
        there = letters[first : first + size]
        worst = next((letter for letter in worst_first if letter in there), ".")
        folded.append("p" if worst == "r" and set(there) != {"r"} else worst)
    return "".join(folded)
