"""The possible states of a simulated disk after a power loss: one state, drawn, or every one.

The model is that of `simulated_files.py`.  Unsynced changes are cut into pieces that land whole or not at all: the
sectors of a write, an allocation, a change of names.  The set of landed pieces gives a state: a file's content depends
on its own pieces, in the order of writing, and the existence of a name on the changes of names alone.
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
    Names = dict[Directory, dict[str, Node]]  # The targets of the names of those directories that changes have altered.

MAX_PENDING: Final = 12  # 12 pieces have 4,096 states; each more doubles that.


def draw_changes(changes: Iterable[Change], chance: random.Random) -> list[Change]:
    """Draw the changes that happened; a name's change is lost if an earlier change of the name is lost."""
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
    """Draw the content of a file: each sector of each write landed or did not.  Also return True if a write is torn."""
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
    return content, is_torn  # A content that equals the old or the new one cannot be told from a whole write.


def _likelihood(chance: random.Random) -> float:
    """Draw the chance that a piece lands; 0 and 1 are drawn often."""
    return chance.choice((0.0, 0.5, 1.0, chance.random()))


def survivor(root: Directory, landed: Iterable[Change], content: Callable[[File], SparseBytes]) -> Directory:
    """Return a copy of the durable state below `root` after these changes; `content` is called once for each file."""
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
    """Return the number of pieces that may land or not, with a visible effect."""
    reachable, files = _reachable(root, changes)
    pieces = sum(_count(waiting, sector_bytes) for file in files for waiting in file.unsynced)
    return pieces + len(_visible(changes, reachable))


def survivors(root: Directory, changes: Sequence[Change], sector_bytes: int) -> Iterator[Directory]:
    """Yield every disk that `draw_changes` and `draw_content` could make of this one, each once.

    Two disks count as one if they differ only in times, and not in names, contents, and shared files.

    Raises:
        ValueError: more than `MAX_PENDING` are pending.
    """
    pending = count_pending(root, changes, sector_bytes)
    if pending > MAX_PENDING:
        raise ValueError(
            f"{pending} writes of sectors and changes of names are pending: of more than {MAX_PENDING} not every "
            "state can be tried; look sooner after a sync, write less, or draw some with power_loss(seed)"
        )
    # A copy, so that the disk may go on meanwhile.
    return _survivors(*copy.deepcopy((root, list(changes))), sector_bytes)


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
    """All possible contents of a file, each once, under a digest that equal contents of other files share."""

    def __init__(self, file: File, sector_bytes: int) -> None:
        self._durable = file.durable()
        touched = file.touched()
        before = SparseBytes({number: self._durable.block(number) for number in touched}, self._durable.size_bytes)
        untouched = set(self._durable.blocks).difference(touched)
        common = sum(_digest_of_block(number, self._durable.block(number)) for number in untouched)
        # Only the differing blocks are held: a long file may have thousands of outcomes.
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
    """Return a sum of block digests; equal contents have equal sums, whichever zero blocks they hold."""
    blocks = sum(_digest_of_block(number, block) for number, block in content.blocks.items())
    return (content.size_bytes << 192) + blocks


def _digest_of_block(number: int, block: bytes) -> int:
    if block == ZEROS:
        return 0
    return int.from_bytes(hashlib.blake2b(block, digest_size=15, salt=number.to_bytes(16, "little")).digest())


def _legal(changes: Iterable[Change]) -> list[list[Change]]:
    """Return every set of changes that may have happened."""
    found: list[tuple[list[Change], set[tuple[int, str]]]] = [([], set())]
    for change in changes:
        with_it = [([*landed, change], lost) for landed, lost in found if not change.places & lost]
        found = [(landed, lost | change.places) for landed, lost in found] + with_it
    return [landed for landed, _ in found]


def _shape(directory: Directory, path: str, names: Names, numbers: dict[File, int]) -> Iterator[tuple[str, int]]:
    """Yield each path with its file's number in the order of discovery, or -1 for a directory."""
    there = names.get(directory, directory.durable)
    for name in sorted(there):
        node = there[name]
        if isinstance(node, Directory):
            yield f"{path}/{name}", -1
            yield from _shape(node, f"{path}/{name}", names, numbers)
        else:
            yield f"{path}/{name}", numbers.setdefault(node, len(numbers))


def _reachable(root: Directory, changes: Iterable[Change]) -> tuple[set[Directory], list[File]]:
    """Return the directories and files that may have a path after the power loss."""
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
    """Return the changes in directories that may exist; changes in durably removed ones have no effect."""
    return [change for change in changes if any(directory in reachable for directory, _, _ in change.names)]


def _pieces(waiting: Written | Allocated, sector_bytes: int) -> Iterator[Written | Allocated]:
    """Yield the pieces that land whole or not at all, in order."""
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
    """Compare two contents that can differ only in these blocks."""
    return one.size_bytes == other.size_bytes and all(one.block(number) == other.block(number) for number in touched)
