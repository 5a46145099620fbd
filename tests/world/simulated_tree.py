"""The files and directories of a simulated disk, each in its visible and its durable state.

`power_loss.py` has the rules of a power loss, `simulated_files.py` the operations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.world.sparse_bytes import BLOCK_BYTES, SparseBytes

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Written:
    """An unsynced write."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Allocated:
    """An unsynced allocation: the file is at least this long."""

    end: int


@dataclass(eq=False)
class File:
    """A file, however many names it has.

    The visible state is kept, with the data to undo all changes since the last sync; so a sync costs only its own
    changes.
    """

    content: SparseBytes = field(default_factory=SparseBytes)
    unsynced: list[Written | Allocated] = field(default_factory=list)
    durable_bytes: int = 0  # The durable length.
    modified_ns: int = 0
    locked: bool = False
    holders: int = 0  # Visible names and descriptors: without any the file takes no space.
    # The durable contents of blocks written since; None: zeros.
    _durable_blocks: dict[int, bytes | None] = field(default_factory=dict)

    def write(self, offset: int, data: bytes) -> None:
        """Write `data`, which is seen at once and durable when synced."""
        if not data:
            return
        for number in range(offset // BLOCK_BYTES, (offset + len(data) - 1) // BLOCK_BYTES + 1):
            if number not in self._durable_blocks:
                self._durable_blocks[number] = self.content.blocks.get(number)
        self.content.write(offset, data)
        self.unsynced.append(Written(offset, data))

    def allocate(self, end: int) -> None:
        """Extend the file to `end`, which is seen at once and durable when synced."""
        self.content.grow(end)
        if end > self.durable_bytes:
            self.unsynced.append(Allocated(end))

    def sync(self) -> None:
        self.durable_bytes = self.content.size_bytes
        self.unsynced.clear()
        self._durable_blocks.clear()

    def durable(self) -> SparseBytes:
        blocks = self.content.blocks.copy()
        for number, block in self._durable_blocks.items():
            if block is None:
                del blocks[number]
            else:
                blocks[number] = block
        return SparseBytes(blocks, self.durable_bytes)

    def touched(self) -> list[int]:
        """Return the blocks that may differ from their durable state."""
        return list(self._durable_blocks)

    def holding(self, content: SparseBytes) -> File:
        """Return a file with this one's time that durably holds `content`."""
        return File(content, durable_bytes=content.size_bytes, modified_ns=self.modified_ns)


@dataclass(eq=False)
class Directory:
    """A directory with its visible and its durable names."""

    live: dict[str, File | Directory] = field(default_factory=dict)
    durable: dict[str, File | Directory] = field(default_factory=dict)
    modified_ns: int = 0


@dataclass(eq=False)
class Change:
    """One unsynced change of names, in one directory or two: the new target of each name."""

    names: list[tuple[Directory, str, File | Directory | None]]
    unsynced: list[Directory]

    @property
    def places(self) -> set[tuple[int, str]]:
        return {(id(directory), name) for directory, name, _ in self.names}


def apply(change: Change) -> None:
    for directory, name, node in change.names:
        if node is None:
            directory.durable.pop(name, None)
        else:
            directory.durable[name] = node


def names_of_files(directory: Directory) -> Iterator[File]:
    """Yield the visible files below a directory, each once per name."""
    for node in directory.live.values():
        if isinstance(node, Directory):
            yield from names_of_files(node)
        else:
            yield node
