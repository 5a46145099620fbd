"""A damaged backup: each command names the file and the offset, or refuses the format; none finds a defect."""

import pytest

from gossipkv.backup.archive import MANIFEST
from gossipkv.backup.jobs import Jobs, Progress, Work
from gossipkv.errors import BadRequest, Corrupt, UnsupportedFormat
from tests.unit.backup.made_up import PLACE
from tests.unit.backup.made_up_cluster import MadeUpCluster

FLIP_EVERY, CUT_EVERY = 41, 97  # Bytes between the places that are tried.


class Damaged:
    """A cluster without tables, and its two backups, of which the second one needs the first one's files."""

    def __init__(self):
        self.cluster, self.disk = MadeUpCluster(), None
        self.disk, self.archive = self.cluster.disk, self.cluster.archive

    async def back_up(self):
        nodes = [self.cluster.make("t", b"", b"m").nodes[0], self.cluster.make("u").nodes[0]]
        for node in nodes:
            node.write(**{f"key{number}": b"%d" % number for number in range(20)})
        base = await self.cluster.back_up()
        for node in nodes:
            node.write(key3=None, key4=b"changed", key99=b"new")
        self.manifest = await self.cluster.back_up(2, since=base.name)
        self.cluster.routes.clear()
        self.names = [*self.manifest.files, f"{self.manifest.name}/{MANIFEST}"]
        assert {name[: len(base.name)] for name in self.names} == {base.name, self.manifest.name}
        return self

    def contents(self):
        """Yield each file's path and bytes."""
        for name in self.names:
            descriptor = self.disk.open(f"{PLACE}/{name}")
            yield f"{PLACE}/{name}", self.disk.pread(descriptor, 1 << 20, 0)

    def write(self, path, content):
        self.disk.unlink(path)
        directory, _, name = path.rpartition("/")
        self.archive._at(directory.rpartition("/")[2]).put(name, content)

    async def verify(self):
        manifest = self.archive.newest()
        for file in manifest.files.values():
            self.archive.check(file)
        return {"done": True}

    async def restore(self):
        return await self.cluster.restore(self.archive.newest())

    async def create(self):
        self.cluster.make("t", b"", b"m").nodes[0].write(key5=b"later")
        try:
            await self.cluster.back_up(3, since=self.manifest.name)
        finally:
            self.cluster.routes.clear()
        return {"done": True}

    async def list(self):
        found = self.archive.contents()
        return {name: self.archive.manifest(name).summary() for name in [*found.damaged, *found.complete]}


@pytest.fixture
async def damaged(autojump_clock):
    return await Damaged().back_up()


def changed(content):
    """Yield the content with one flipped bit each, and cut at several lengths."""
    for at in range(0, len(content), FLIP_EVERY):
        yield content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
    for length in range(0, len(content), CUT_EVERY):
        yield content[:length]


async def refusal(jobs, number, work):
    """Return the error of a job; None if it succeeds."""
    try:
        await jobs.ask(b"%d" % number, 3600, Work((), Progress(), work))
    except (Corrupt, UnsupportedFormat, BadRequest) as error:
        return error
    return None


@pytest.mark.parametrize("method", ["verify", "restore", "create", "list"])
async def test_each_place_and_length(damaged, nursery, autojump_clock, method):
    jobs, number = Jobs(), 0
    await nursery.start(jobs.run)
    for path, whole in damaged.contents():
        for content in changed(whole):
            damaged.write(path, content)
            number += 1
            error = await refusal(jobs, number, getattr(damaged, method))
            if method in {"verify", "restore"} or path.endswith(MANIFEST):
                assert isinstance(error, Corrupt | UnsupportedFormat), (path, error)
                assert path in error.message
                assert not isinstance(error, Corrupt) or error.details["offset"] >= 0
            assert not damaged.cluster.restored
        damaged.write(path, whole)
    assert number > 100
    assert await refusal(jobs, 0, damaged.verify) is None


@pytest.mark.parametrize("method", ["verify", "restore"])
async def test_a_missing_file(damaged, nursery, autojump_clock, method):
    jobs = Jobs()
    await nursery.start(jobs.run)
    for number, name in enumerate(damaged.manifest.files):
        path = f"{PLACE}/{name}"
        damaged.disk.rename(path, f"{PLACE}/aside")
        error = await refusal(jobs, number, getattr(damaged, method))
        assert isinstance(error, Corrupt)
        assert path in error.message, error.message
        damaged.disk.rename(f"{PLACE}/aside", path)
