"""Reading a version back in a child: damage is reported, its priority is low, and it always ends."""

import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.scrub.parent import ReadBackError, read_back_in_child
from gossipkv.dataset.scrub.read_back import Job
from gossipkv.environment.real_files import RealFiles
from gossipkv.processes.niceness import NICENESS
from tests.unit.dataset.sources import MEMORY_BYTES

MANY = b"".join(b"%08d\t%050d\n" % (number, number) for number in range(20_000))
NO_HURRY = 1 << 30


@pytest.fixture
def built(job):
    """Return the directory of a version with two partitions, of a few hundred pages."""
    one = job([MANY, b"a\t1\n"])
    perform(one, RealFiles(), BuildResources(MEMORY_BYTES))
    return Path(one.directory)


def task(built, bytes_per_second=NO_HURRY):
    return Job(str(built), "db", "v1", bytes_per_second)


def flip(path, at):
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


async def test_what_is_whole_and_what_is_damaged(built):
    """Damage is reported as found, before the end."""
    found = []
    outcome = await read_back_in_child(task(built), found.append)
    size_bytes = sum(path.stat().st_size for path in built.glob("*.gkv"))
    assert (outcome.files, outcome.size_bytes, found) == (2, size_bytes, [])
    flip(built / "part-00000.gkv", 9000)
    assert await read_back_in_child(task(built), found.append) == outcome
    (damage,) = found
    assert (damage.file, damage.offset) == (str(built / "part-00000.gkv"), 8192)
    assert damage.details["expected"] != damage.details["got"]


def children():
    """Return the running child processes of this process."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}


@asynccontextmanager
async def in_the_middle(built, errors):
    """Run a child that would take hours; it ends with the block."""
    before = children()

    async def read():
        try:
            await read_back_in_child(task(built, 100), lambda _: None)
        except ReadBackError as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        with trio.fail_after(60):
            while not (new := children() - before):
                await trio.sleep(0.01)
        (child,) = new
        yield child
        nursery.cancel_scope.cancel()


async def test_it_comes_last_and_ends_with_who_started_it(built):
    """Readers have priority over it."""
    async with in_the_middle(built, []) as child:
        with trio.fail_after(60):
            while os.getpriority(os.PRIO_PROCESS, child) != NICENESS:
                await trio.sleep(0.01)
    assert child not in children()


async def test_a_child_that_is_killed_is_an_error_and_no_verdict(built):
    """The error says how the child ended."""
    errors = []
    async with in_the_middle(built, errors) as child:
        os.kill(child, signal.SIGKILL)
        with trio.fail_after(60):
            while not errors:
                await trio.sleep(0.01)
    assert "was killed by signal 9" in str(errors[0])


async def test_what_the_system_refuses_is_an_error_and_no_verdict(built):
    """The error names the file that could not be opened."""
    (built / "part-00000.gkv").unlink()
    (built / "part-00000.gkv").symlink_to(built / "part-00000.gkv")
    found = []
    with pytest.raises(ReadBackError, match=r"part-00000\.gkv: Too many levels"):
        await read_back_in_child(task(built), found.append)
    assert found == []
