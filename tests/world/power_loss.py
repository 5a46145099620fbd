"""What a simulated disk may hold when the power comes back: one state, drawn, or every one.

The model is that of `simulated_files.py`.  What waits for a sync is cut into what lands whole or not at all: the
sectors of a write, an allocation, a change of names.  A state is given by which of them landed: what is in a file by
its own, in the order in which they were written, and whether a name is there by the changes of names alone.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
from typing import TYPE_CHECKING, Final

from tests.world.simulated_tree import Allocated, Directory, File, Written
from tests.world.sparse_bytes import ZEROS, SparseBytes

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.world.simulated_tree import Change

    Node = File | Directory
    Names = dict[Directory, dict[str, Node]]  # Where the names of a directory lead, of those that changes have altered.

MAX_PENDING: Final = 12  # They have 4,096 states; with each more, twice as many.


def draw_changes(changes: Iterable[Change], chance: random.Random) -> list[Change]:
    """Those that happened: any, but that a change of a name whose earlier change is lost is lost, too."""
    likelihood = _likelihood(chance)
    lost: set[tuple[int, str]] = set()
    landed = []
    for change in changes:
        if chance.random() < likelihood and not change.places & lost:
            landed.append(change)
        else:
            lost |= change.places
    return landed


def draw_content(file: File, chance: random.Random, sector_bytes: int) -> tuple[SparseBytes, bool]:
    """What is in a file, and whether some write is torn: each sector of each landed or did not."""
    content = file.durable()
    likelihood = _likelihood(chance)
    is_torn = False
    for waiting in file.unsynced:
        landed = set()
        for piece in _pieces(waiting, sector_bytes):
            lands = chance.random() < likelihood
            landed.add(lands)
            if lands:
                _land(piece, content)
        is_torn |= len(landed) > 1
    is_torn = is_torn and not any(_same(content, other, file.touched()) for other in (file.durable(), file.content))
    return content, is_torn  # A file that is as it was, or as it was to be, nobody can tell from a whole one.


def _likelihood(chance: random.Random) -> float:
    """How likely each piece lands: none and all of them are drawn often enough to be met."""
    return chance.choice((0.0, 0.5, 1.0, chance.random()))


def survivor(root: Directory, landed: Iterable[Change], content: Callable[[File], SparseBytes]) -> Directory:
    """A copy of what is durable below `root` once these changes are; `content` is asked once for each file."""
    return _survivor(root, _names(landed), content, {})


def _survivor(
    directory: Directory, names: Names, content: Callable[[File], SparseBytes], made: dict[File, File]
) -> Directory:
    survivor = Directory(modified_ns=directory.modified_ns)
    there = names.get(directory, directory.durable)
    for name in sorted(there):
        node = there[name]
        if isinstance(node, Directory):
            survivor.durable[name] = _survivor(node, names, content, made)
        else:
            if node not in made:
                made[node] = node.holding(content(node))
            survivor.durable[name] = made[node]
    survivor.live = dict(survivor.durable)
    return survivor


def _names(landed: Iterable[Change]) -> Names:
    names: Names = {}
    for change in landed:
        for directory, name, node in change.names:
            there = names.setdefault(directory, dict(directory.durable))
            if node is None:
                there.pop(name, None)
            else:
                there[name] = node
    return names


def count_pending(root: Directory, changes: Sequence[Change], sector_bytes: int) -> int:
    """How many writes of sectors, allocations and changes of names may land or not, and could be seen to."""
    reachable, files = _reachable(root, changes)
    pieces = sum(_count(waiting, sector_bytes) for file in files for waiting in file.unsynced)
    return pieces + len(_visible(changes, reachable))


def survivors(root: Directory, changes: Sequence[Change], sector_bytes: int) -> Iterator[Directory]:
    """Every disk that `draw_changes` and `draw_content` could make of this one, each once.

    Two that differ only in times, and not in names, contents, and which names are the same file, are one.

    Raises:
        ValueError: more than `MAX_PENDING` are pending.
    """
    pending = count_pending(root, changes, sector_bytes)
    if pending > MAX_PENDING:
        raise ValueError(
            f"{pending} writes of sectors and changes of names are pending: of more than {MAX_PENDING} not every "
            "state can be tried; look sooner after a sync, write less, or draw some with power_loss(seed)"
        )
    return _survivors(*copy.deepcopy((root, list(changes))), sector_bytes)  # So the disk may go on meanwhile.


def _survivors(root: Directory, changes: list[Change], sector_bytes: int) -> Iterator[Directory]:
    reachable, files = _reachable(root, changes)
    outcomes = {file: _Outcomes(file, sector_bytes) for file in files}
    seen: set[tuple[tuple[tuple[str, int], ...], tuple[int, ...]]] = set()
    for landed in _legal(_visible(changes, reachable)):
        numbers: dict[File, int] = {}
        shape = tuple(_shape(root, "", _names(landed), numbers))
        for contents in itertools.product(*(outcomes[file].digests.items() for file in numbers)):
            state = shape, tuple(digest for digest, _ in contents)
            if state not in seen:
                seen.add(state)
                chosen = {file: outcomes[file].content(part) for file, (_, part) in zip(numbers, contents, strict=True)}
                yield survivor(root, landed, chosen.__getitem__)


class _Outcomes:
    """All that may be in a file, each once, by a digest that is the same for equal contents of other files."""

    def __init__(self, file: File, sector_bytes: int) -> None:
        self._durable = file.durable()
        touched = file.touched()
        before = SparseBytes({number: self._durable.block(number) for number in touched}, self._durable.size_bytes)
        untouched = set(self._durable.blocks).difference(touched)
        common = sum(_digest_of_block(number, self._durable.block(number)) for number in untouched)
        # Only the blocks that differ are held: of a long file there may be thousands of outcomes.
        self.digests = {common + _digest(before): before}
        for waiting in file.unsynced:
            for piece in _pieces(waiting, sector_bytes):
                for content in list(self.digests.values()):
                    after = content.copied()
                    _land(piece, after)
                    self.digests.setdefault(common + _digest(after), after)

    def content(self, part: SparseBytes) -> SparseBytes:
        return SparseBytes(self._durable.blocks | part.blocks, part.size_bytes)


def _digest(content: SparseBytes) -> int:
    """A sum, so that blocks can be added: equal for equal contents, whatever blocks of zeros they have or lack."""
    blocks = sum(_digest_of_block(number, block) for number, block in content.blocks.items())
    return (content.size_bytes << 192) + blocks


def _digest_of_block(number: int, block: bytes) -> int:
    if block == ZEROS:
        return 0
    return int.from_bytes(hashlib.blake2b(block, digest_size=15, salt=number.to_bytes(16, "little")).digest())


def _legal(changes: Iterable[Change]) -> list[list[Change]]:
    """Every set of changes that may have happened."""
    found: list[tuple[list[Change], set[tuple[int, str]]]] = [([], set())]
    for change in changes:
        with_it = [([*landed, change], lost) for landed, lost in found if not change.places & lost]
        found = [(landed, lost | change.places) for landed, lost in found] + with_it
    return [landed for landed, _ in found]


def _shape(directory: Directory, path: str, names: Names, numbers: dict[File, int]) -> Iterator[tuple[str, int]]:
    """Each path, and what is there: which file, by the order in which they are met, or -1 for a directory."""
    there = names.get(directory, directory.durable)
    for name in sorted(there):
        node = there[name]
        if isinstance(node, Directory):
            yield f"{path}/{name}", -1
            yield from _shape(node, f"{path}/{name}", names, numbers)
        else:
            yield f"{path}/{name}", numbers.setdefault(node, len(numbers))


def _reachable(root: Directory, changes: Iterable[Change]) -> tuple[set[Directory], list[File]]:
    """What may have a path once the power is back."""
    to: dict[Directory, list[Node]] = {}
    for change in changes:
        for directory, _, node in change.names:
            if node is not None:
                to.setdefault(directory, []).append(node)
    found: dict[Node, None] = {}
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            if isinstance(node, Directory):
                waiting += [*node.durable.values(), *to.get(node, ())]
    return {node for node in found if isinstance(node, Directory)}, [node for node in found if isinstance(node, File)]


def _visible(changes: Iterable[Change], reachable: set[Directory]) -> list[Change]:
    """Those in directories that may be there: what happened in others, which are durably gone, shows nowhere."""
    return [change for change in changes if any(directory in reachable for directory, _, _ in change.names)]


def _pieces(waiting: Written | Allocated, sector_bytes: int) -> Iterator[Written | Allocated]:
    """What lands whole or not at all, in order."""
    if isinstance(waiting, Allocated):
        yield waiting
        return
    at = 0
    while at < len(waiting.data):
        end = min(len(waiting.data), at + sector_bytes - (waiting.offset + at) % sector_bytes)
        yield Written(waiting.offset + at, waiting.data[at:end])
        at = end


def _count(waiting: Written | Allocated, sector_bytes: int) -> int:
    if isinstance(waiting, Allocated):
        return 1
    return (waiting.offset + len(waiting.data) - 1) // sector_bytes - waiting.offset // sector_bytes + 1


def _land(piece: Written | Allocated, content: SparseBytes) -> None:
    if isinstance(piece, Allocated):
        content.grow(piece.end)
    else:
        content.write(piece.offset, piece.data)


def _same(one: SparseBytes, other: SparseBytes, touched: Iterable[int]) -> bool:
    """Whether they are equal, where only these blocks could differ."""
    return one.size_bytes == other.size_bytes and all(one.block(number) == other.block(number) for number in touched)
