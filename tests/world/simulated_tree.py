"""What is on a simulated disk: files and directories, each as it is seen and as it durably is, and what lies between.

The rules of what may become of it when the power goes are in `power_loss.py`; the operations in `simulated_files.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.world.sparse_bytes import BLOCK_BYTES, SparseBytes

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Written:
    """An un-synced write."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Allocated:
    """An un-synced allocation: the file is at least so long."""

    end: int


@dataclass(eq=False)
class File:
    """A file, however many names it has.

    It is kept as it is seen, with what undoes whatever came since the last sync: so a sync costs what it makes durable.
    """

    content: SparseBytes = field(default_factory=SparseBytes)
    unsynced: list[Written | Allocated] = field(default_factory=list)
    durable_bytes: int = 0  # How long it durably is.
    modified_ns: int = 0
    locked: bool = False
    holders: int = 0  # Names that can be seen, and descriptors: without any it takes no space.
    _durable_blocks: dict[int, bytes | None] = field(default_factory=dict)  # Those written since; None: of zeros.

    def write(self, offset: int, data: bytes) -> None:
        """Seen at once, durable when it is synced."""
        if not data:
            return
        for number in range(offset // BLOCK_BYTES, (offset + len(data) - 1) // BLOCK_BYTES + 1):
            if number not in self._durable_blocks:
                self._durable_blocks[number] = self.content.blocks.get(number)
        self.content.write(offset, data)
        self.unsynced.append(Written(offset, data))

    def allocate(self, end: int) -> None:
        """Be at least so long: seen at once, durable when it is synced."""
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
        """The blocks that may be other than they durably are."""
        return list(self._durable_blocks)

    def holding(self, content: SparseBytes) -> File:
        """A file of this one's time that durably holds `content`."""
        return File(content, durable_bytes=content.size_bytes, modified_ns=self.modified_ns)


@dataclass(eq=False)
class Directory:
    """A directory: where its names lead."""

    live: dict[str, File | Directory] = field(default_factory=dict)
    durable: dict[str, File | Directory] = field(default_factory=dict)
    modified_ns: int = 0


@dataclass(eq=False)
class Change:
    """One un-synced change of names, in one directory or two: what each name leads to from now on."""

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
    """The files that can be seen below a directory, each as often as it has names."""
    for node in directory.live.values():
        if isinstance(node, Directory):
            yield from names_of_files(node)
        else:
            yield node
