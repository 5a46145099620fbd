"""A disk in plain Python: visible and durable contents, and by trial every state that a loss of power may leave."""

from __future__ import annotations

import errno
import itertools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # A path; then the contents of a file and the first of its names, or None and "" for a directory.
    State = tuple[tuple[str, bytes | None, str], ...]


@dataclass(eq=False)
class Node:
    is_directory: bool
    seen: bytes = b""
    durable: bytes = b""
    waiting: list[tuple[int, bytes] | int] = field(default_factory=list)  # Writes, and sizes to grow to.
    names: dict[str, Node] = field(default_factory=dict)
    durable_names: dict[str, Node] = field(default_factory=dict)


@dataclass(eq=False)
class Change:
    """New targets of names, and the directories that must still be synced."""

    names: list[tuple[Node, str, Node | None]]
    unsynced: list[Node]

    def touches(self, other: Change) -> bool:
        """Return True if both change the same name."""
        return any(
            one[0] is another[0] and one[1] == another[1] for one, another in itertools.product(self.names, other.names)
        )


def refuse(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def with_write(content: bytes, offset: int, data: bytes) -> bytes:
    return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]


def sectors(offset: int, data: bytes, sector_bytes: int) -> list[tuple[int, bytes]]:
    by_sector: dict[int, list[int]] = {}
    for at in range(offset, offset + len(data)):
        by_sector.setdefault(at // sector_bytes, []).append(at)
    return [(places[0], bytes(data[at - offset] for at in places)) for places in by_sector.values()]


class Disk:
    def __init__(self, capacity_bytes: int, sector_bytes: int, state: State = ()) -> None:
        self.capacity_bytes = capacity_bytes
        self.sector_bytes = sector_bytes
        self.root = Node(is_directory=True)
        self.changes: list[Change] = []
        self.opened: list[Node] = []
        self.made: list[Node] = []  # All files that ever existed.
        by_name: dict[str, Node] = {}
        for path, content, first in sorted(state):
            node = Node(is_directory=content is None, seen=content or b"", durable=content or b"")
            self.made.append(node)
            by_name[path] = node if content is None or path == first else by_name[first]
            above, name = path.rsplit("/", 1)
            directory = by_name.get(above, self.root)
            directory.names[name] = directory.durable_names[name] = by_name[path]

    # Paths

    def node(self, path: str) -> Node:
        node = self.root
        for part in path.split("/")[1:]:
            if not node.is_directory:
                raise refuse(errno.ENOTDIR)
            if part not in node.names:
                raise refuse(errno.ENOENT)
            node = node.names[part]
        return node

    def place(self, path: str) -> tuple[Node, str]:
        """Return an existing directory, and a name."""
        above, name = path.rsplit("/", 1)
        directory = self.node(above) if above else self.root
        if not directory.is_directory:
            raise refuse(errno.ENOTDIR)
        return directory, name

    def change(self, *names: tuple[Node, str, Node | None]) -> None:
        for directory, name, node in names:
            directory.names.pop(name, None)
            if node is not None:
                directory.names[name] = node
        self.changes.append(Change(list(names), [directory for directory, _, _ in names]))

    # Operations

    def create(self, path: str) -> None:
        directory, name = self.place(path)
        if name in directory.names:
            raise refuse(errno.EEXIST)
        self.change((directory, name, Node(is_directory=False)))
        self.made.append(directory.names[name])
        self.opened.append(directory.names[name])

    def open(self, path: str) -> None:
        node = self.node(path)
        if node.is_directory:
            raise refuse(errno.EISDIR)
        self.opened.append(node)

    def write(self, number: int, offset: int, data: bytes) -> int:
        """Write as many bytes as there is room for; return their number."""
        file = self.opened[number]
        free = self.free()
        fitting = [size for size in range(len(data) + 1) if max(0, offset + size - len(file.seen)) <= free]
        landed = data[: max(fitting, default=0)]
        if landed:
            file.seen = with_write(file.seen, offset, landed)
            file.waiting.append((offset, landed))
        return len(landed)

    def allocate(self, number: int, offset: int, size_bytes: int) -> None:
        file = self.opened[number]
        if size_bytes == 0:
            raise refuse(errno.EINVAL)
        if offset + size_bytes - len(file.seen) > self.free():
            raise refuse(errno.ENOSPC)
        file.seen = file.seen.ljust(offset + size_bytes, b"\0")
        if offset + size_bytes > len(file.durable):
            file.waiting.append(offset + size_bytes)

    def sync(self, number: int) -> None:
        file = self.opened[number]
        file.durable = file.seen
        file.waiting = []

    def sync_directory(self, path: str) -> None:
        """Make names durable, unless an earlier change of the same name is still waiting."""
        directory = self.node(path) if path != "/" else self.root
        if not directory.is_directory:
            raise refuse(errno.ENOTDIR)
        waiting: list[Change] = []
        for change in self.changes:
            change.unsynced = [other for other in change.unsynced if other is not directory]
            if change.unsynced or any(change.touches(earlier) for earlier in waiting):
                waiting.append(change)
            else:
                for there, name, node in change.names:
                    there.durable_names.pop(name, None)
                    if node is not None:
                        there.durable_names[name] = node
        self.changes = waiting

    def rename(self, source: str, target: str) -> None:
        old, old_name = self.place(source)
        new, new_name = self.place(target)
        node = self.node(source)
        there = new.names.get(new_name)
        if there is node:
            return
        if target.startswith(f"{source}/"):
            raise refuse(errno.EINVAL)
        if source.startswith(f"{target}/"):
            raise refuse(errno.ENOTEMPTY)
        if there is not None and node.is_directory != there.is_directory:
            raise refuse(errno.EISDIR if there.is_directory else errno.ENOTDIR)
        if there is not None and there.names:
            raise refuse(errno.ENOTEMPTY)
        self.change((old, old_name, None), (new, new_name, node))

    def link(self, source: str, target: str) -> None:
        node = self.node(source)
        directory, name = self.place(target)
        if name in directory.names:
            raise refuse(errno.EEXIST)
        if node.is_directory:
            raise refuse(errno.EPERM)
        self.change((directory, name, node))

    def unlink(self, path: str) -> None:
        node = self.node(path)
        if node.is_directory:
            raise refuse(errno.EISDIR)
        self.change((*self.place(path), None))

    def make_directory(self, path: str) -> None:
        directory, name = self.place(path)
        if name in directory.names:
            raise refuse(errno.EEXIST)
        self.change((directory, name, Node(is_directory=True)))

    def remove_directory(self, path: str) -> None:
        node = self.node(path)
        if not node.is_directory:
            raise refuse(errno.ENOTDIR)
        if node.names:
            raise refuse(errno.ENOTEMPTY)
        self.change((*self.place(path), None))

    def free(self) -> int:
        files = {node for _, node in walk("", self.root, by_name) if not node.is_directory} | set(self.opened)
        return max(0, self.capacity_bytes - sum(len(file.seen) for file in files))

    # States

    def seen(self) -> State:
        nodes = list(walk("", self.root, by_name))
        return shown(nodes, {node: node.seen for _, node in nodes})

    def waiting(self) -> int:
        """Return how many changes and writes wait for a sync, visible or not."""
        return len(self.changes) + sum(len(self.pieces(file)) for file in self.made)

    def pieces(self, file: Node) -> list[tuple[int, bytes] | int]:
        """Return the units of a file that land or are lost as a whole."""
        found: list[tuple[int, bytes] | int] = []
        for each in file.waiting:
            found += [each] if isinstance(each, int) else sectors(*each, self.sector_bytes)
        return found

    def trees(self) -> Iterator[list[tuple[str, Node]]]:
        for lands in itertools.product((False, True), repeat=len(self.changes)):
            if any(
                lands[later] and not lands[earlier] and self.changes[later].touches(self.changes[earlier])
                for earlier, later in itertools.combinations(range(len(self.changes)), 2)
            ):
                continue
            altered: dict[Node, dict[str, Node]] = {}
            for change in itertools.compress(self.changes, lands):
                for directory, name, node in change.names:
                    names = altered.setdefault(directory, dict(directory.durable_names))
                    names.pop(name, None)
                    if node is not None:
                        names[name] = node
            yield list(walk("", self.root, lambda node, altered=altered: altered.get(node, node.durable_names)))

    def states(self) -> set[State]:
        """Return every state that a loss of power may leave."""
        found = set()
        for tree in self.trees():
            files = list({node: None for _, node in tree if not node.is_directory})
            for contents in itertools.product(*(self.contents(file) for file in files)):
                found.add(shown(tree, dict(zip(files, contents, strict=True))))
        return found

    def contents(self, file: Node) -> list[bytes]:
        pieces = self.pieces(file)
        found = []
        for lands in itertools.product((False, True), repeat=len(pieces)):
            content = file.durable
            for piece in itertools.compress(pieces, lands):
                content = content.ljust(piece, b"\0") if isinstance(piece, int) else with_write(content, *piece)
            found.append(content)
        return found

    def pending(self) -> int:
        """Count the waiting changes that could be seen to have landed: in a file or directory that some state has."""
        shows = {node for tree in self.trees() for _, node in tree} | {self.root}
        changes = [change for change in self.changes if any(directory in shows for directory, _, _ in change.names)]
        return len(changes) + sum(len(self.pieces(file)) for file in shows)


def by_name(node: Node) -> dict[str, Node]:
    """Return the visible names of a directory; a file has none."""
    return node.names


def walk(path: str, node: Node, names_of: Callable[[Node], dict[str, Node]]) -> Iterator[tuple[str, Node]]:
    names = names_of(node)
    for name in sorted(names):
        yield f"{path}/{name}", names[name]
        yield from walk(f"{path}/{name}", names[name], names_of)


def shown(nodes: list[tuple[str, Node]], contents: dict[Node, bytes]) -> State:
    first: dict[Node, str] = {}
    for path, node in sorted(nodes, key=lambda each: each[0]):
        first.setdefault(node, path)
    return tuple(
        (path, None, "") if node.is_directory else (path, contents[node], first[node])
        for path, node in sorted(nodes, key=lambda each: each[0])
    )
