"""The sources of whole nodes: on each machine's disk a directory with the versions that the machine sees.

`datasets.contents.Sources` decides which machine sees which versions, for cores on a heap as well: all see the same, or
one sees its own, or none.  Here the versions are files of a job, with one record a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.environment.seam import READ_WRITE_NEW
from tests.world.datasets.contents import DATABASE, KEY_NAMES, Sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.world.datasets.contents import Content
    from tests.world.nodes.machine import NodeMachine
    from tests.world.simulated_files import SimulatedFiles

ROOT: Final = "/source"
SUCCESS: Final = "_SUCCESS"


def records(content: Content, file: int) -> bytes:
    """Return the content of a version's file."""
    keys = [key for key in KEY_NAMES if content.file_of(key) == file]
    return b"".join(b"%s\t%s\n" % (key, value) for key in keys if (value := content.value(key)) is not None)


@final
class LaidOutSources:
    """The sources of the machines of one cluster, as directories."""

    def __init__(self, machines: Iterable[NodeMachine]) -> None:
        self.contents = Sources()
        self._machines = machines

    def add(self, content: Content) -> None:
        """Show a version to all machines that share the common source."""
        self.contents.add(content)
        self.lay_out()

    def give(self, machine: NodeMachine, seen: Mapping[str, Content] | None) -> None:
        """Show a machine these versions instead; None: its source is gone."""
        self.contents.give(machine, seen)
        self.lay_out()

    def share(self, machine: NodeMachine) -> None:
        self.contents.share(machine)
        self.lay_out()

    def lay_out(self) -> None:
        """Make each disk show its machine's versions; also called when a machine has another disk."""
        for machine in self._machines:
            seen = self.contents.seen(machine)
            if not self.contents.has(machine):
                _remove(machine.disk, ROOT)
                continue
            for path in (ROOT, f"{ROOT}/{DATABASE}"):
                _make_directory(machine.disk, path)
            for entry in machine.disk.list_directory(f"{ROOT}/{DATABASE}"):
                if entry.name not in seen:
                    _remove(machine.disk, f"{ROOT}/{DATABASE}/{entry.name}")
            for content in seen.values():
                upload(machine.disk, content, range(content.partitions))


def upload(
    disk: SimulatedFiles, content: Content, files: Iterable[int], *, part: float = 1.0, database: str = DATABASE
) -> None:
    """Write the missing files of a version, each up to `part` of its bytes."""
    directory = f"{ROOT}/{database}/{content.version}"
    for path in (f"{ROOT}/{database}", directory):
        _make_directory(disk, path)
    there = {entry.name: entry.size_bytes for entry in disk.list_directory(directory)}
    for number in files:
        name, data = f"part-{number:05}", records(content, number)
        data = data[: int(len(data) * part)]
        if there.get(name) != len(data):
            if name in there:
                disk.unlink(f"{directory}/{name}")
            _write(disk, f"{directory}/{name}", data)
    if part == 1.0 and SUCCESS not in there and len(set(files)) == content.partitions:
        _write(disk, f"{directory}/{SUCCESS}", b"")
    disk.sync_directory(directory)


def _write(disk: SimulatedFiles, path: str, data: bytes) -> None:
    descriptor = disk.open(path, READ_WRITE_NEW)
    disk.pwrite(descriptor, data, 0)
    disk.sync(descriptor)
    disk.close(descriptor)


def _make_directory(disk: SimulatedFiles, path: str) -> None:
    above, _, name = path.rpartition("/")
    if name not in {entry.name for entry in disk.list_directory(above or "/")}:
        disk.make_directory(path)
        disk.sync_directory(above or "/")


def _remove(disk: SimulatedFiles, path: str) -> None:
    above, _, name = path.rpartition("/")
    entry = next((entry for entry in disk.list_directory(above or "/") if entry.name == name), None)
    if entry is None:
        return
    if entry.kind == "directory":
        for inner in disk.list_directory(path):
            _remove(disk, f"{path}/{inner.name}")
        disk.remove_directory(path)
    else:
        disk.unlink(path)
    disk.sync_directory(above or "/")
