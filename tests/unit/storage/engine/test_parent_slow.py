"""The node's side of a merge: children that work, are killed, lie, or never end."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt
from gossipkv.storage.engine import parent
from gossipkv.storage.engine.manifest import RunFile
from gossipkv.storage.engine.parent import MergeError, merge_in_child
from gossipkv.storage.engine.policy import Manner
from tests.oracle import merge as oracle
from tests.unit.storage.engine.merge_world import MERGE, World, parts, switched

CALM = Manner(gives_way=False, bytes_per_second=0)


def wide(numbers):
    return {oracle.key_of(1, b"%05d" % number): b"\x01" + bytes(90) for number in numbers}


@pytest.fixture
def world(tmp_path):
    """Return a store with a young run and an oldest one of three files."""
    (tmp_path / "runs").mkdir()
    world = World(RealFiles(), str(tmp_path))
    world.add_young(parts(wide(range(0, 300, 2)), [80]))
    world.add_oldest(parts(wide(range(300)), [100, 200]))
    return world


@pytest.fixture
def order(world):
    """Return an order to merge everything into the oldest run."""
    return world.order_into_oldest({1})


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Return a function that replaces the child's program; the program gets the order's line, and lines to print."""

    def put(program, said=()):
        (tmp_path / "another_child.py").write_text(
            "import json, os, sys, time\n"
            "order = sys.stdin.readline()\n"
            f"said = {[json.dumps(line) if not isinstance(line, str) else line for line in said]!r}\n"
            f"{program}\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(parent, "MODULE", "another_child")

    return put


def file(number, first=b"\0\0\0\x01a", last=b"\0\0\0\x01b", merge=MERGE, **more):
    """Return a child's description of a file."""
    told = RunFile(f"{merge:08d}-{number:04d}.gkv", 3, 1000, 7, first, last, 0)._replace(**more)
    return [*told[:4], told.first.hex(), told.last.hex(), told.tombstones]


async def run(order, manner=lambda: CALM):
    return await merge_in_child(order, manner)


async def test_a_child_that_works(world, order):
    output = await run(order)
    assert output.end is None
    assert world.content(switched(world.oldest, output)) == wide(range(300))


async def test_a_child_that_writes_a_stretch(order):
    """The output names the start of the rest."""
    output = await run(replace(order, file_bytes=16_000, stretch_bytes=16_000))
    assert output.files[-1].last < output.end


def damage_file(path):
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 3] ^= 1
    Path(path).write_bytes(data)


async def test_damage_is_raised_as_such(world, order):
    """File and offset are those of the child."""
    path = world.path(world.young[0][0].name)
    damage_file(path)
    with pytest.raises(Corrupt) as damage:
        await run(order)
    assert damage.value.details["file"] == path


async def test_what_the_system_refuses_is_said(order, tmp_path):
    with pytest.raises(MergeError, match="No such file"):
        await run(replace(order, directory=str(tmp_path / "nowhere")))


async def test_a_killed_child(order, monkeypatch):
    """The error names the signal, and no process stays."""
    seen = []

    def kill(process):
        seen.append(process)
        os.kill(process, signal.SIGKILL)
        return True

    monkeypatch.setattr(parent, "take_back", kill)
    with pytest.raises(MergeError, match="killed by signal 9"):
        await run(replace(order, bytes_per_second=1))
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], 0)


LAST = {"done": [[], [], None]}
OLD = [f"00000001-{number:04d}.gkv" for number in range(3, 6)]
KEY = b"\0\0\0\x01"  # Before the keys of all files.


def done(replaced, *files, end=None):
    """Return the line of a merge that wrote these files."""
    return {"done": [replaced, files, None if end is None else end.hex()]}


LIES = {
    "a file of another merge": [done([], file(1, merge=MERGE + 1))],
    "a file somewhere else": [done([], file(1, name="../../MANIFEST"))],
    "one file twice": [done([], file(1), file(1, first=KEY + b"c", last=KEY + b"d"))],
    "a file left out": [done([], file(2))],
    "keys that descend": [done([], file(1), file(2))],
    "a last key before the first": [done([], file(1, KEY + b"b", KEY + b"a"))],
    "in place of a file that is not there": [done(["nothing.gkv"], file(1))],
    "in place of one file twice": [done([OLD[0], OLD[0]])],
    "keys within a file that stays": [done([], file(1, KEY + b"00007", KEY + b"00008"))],
    "an end within what it wrote": [done([], file(1), end=KEY + b"b")],
    "an end where it began": [done([], end=b"")],
    "an end that is no digits": [{"done": [[], [], "zz"]}],
    "too few words of a file": [done([], file(1)[:5])],
    "a file that is a number": [done([], 5)],
    "sizes that are lists": [done([], file(1, size_bytes=[]))],
    "keys that are no digits": [done([], [*file(1)[:4], "zz", "zz", 0])],
    "a line without end of brackets": ["[" * 100_000],
    "no JSON": ["hello"],
    "bytes that are no text": ["\udcff"],
    "nothing": [],
}


async def test_a_flush_has_no_rest(order, child):
    """A flush must merge the whole log, because a rest would stay unread."""
    child("print('\\n'.join(said), flush=True)", [done([], end=KEY)])
    with pytest.raises(MergeError, match="impossible files"):
        await run(replace(order, runs=()))


@pytest.mark.parametrize("lie", LIES)
async def test_a_child_that_lies(order, child, lie):
    """An impossible output fails the merge, so that no input is removed."""
    child("sys.stdout.buffer.write('\\n'.join([*said, '']).encode('utf-8', 'surrogateescape'))", LIES[lie])
    with pytest.raises(MergeError, match=r"the merge failed"):
        await run(order)


async def test_a_child_that_says_why_it_ends(order, child):
    """The error has the child's status and its last line of standard error."""
    child("sys.exit('the moon is full')")
    with pytest.raises(MergeError, match=r"ended with status 1: the moon is full"):
        await run(order)


@pytest.mark.parametrize(
    ("program", "reason"),
    [("time.sleep(1000)", "reported nothing"), ("os.close(1); time.sleep(1000)", "closed its output")],
    ids=["silent", "closed"],
)
async def test_a_child_that_never_ends(order, child, monkeypatch, program, reason):
    """The child is killed, whether its output is open or closed."""
    listen = parent._listen

    async def listened(*arguments):
        told = await listen(*arguments)
        monkeypatch.setattr(parent, "STALL_S", 0.1)
        return told

    monkeypatch.setattr(parent, "_listen", listened)
    monkeypatch.setattr(parent, "STALL_S", 60 if "closed" in reason else 0.3)
    child(program)
    with pytest.raises(MergeError, match=reason):
        await run(order)


async def test_a_child_that_cannot_be_started(order, monkeypatch):
    async def refuse(*_arguments, **_options):
        raise OSError(24, "too many open files")

    monkeypatch.setattr(trio.lowlevel, "open_process", refuse)
    with pytest.raises(OSError, match="too many"):
        await run(order)


async def test_it_is_told_how_hard_to_work(order, child, monkeypatch):
    """The child is told each change of its pace; its priority is tried again until the system changes it."""
    monkeypatch.setattr(parent, "MANNER_PERIOD_S", 0.01)
    child(
        "paces = [sys.stdin.readline() for _ in range(3)]\n"
        "assert paces == ['0\\n', '70\\n', '5\\n'], paces\n"
        "print('\\n'.join(said), flush=True)",
        [LAST],
    )
    gently = CALM._replace(gives_way=True, bytes_per_second=70)
    manners = [CALM, CALM, gently, gently, gently, CALM._replace(bytes_per_second=5)]
    told = iter(manners)
    asked = []

    def heed(what, done):
        def set_priority(process):
            asked.append(what)
            return next(done)

        return set_priority

    monkeypatch.setattr(parent, "give_way", heed("gives way", iter([False, True])))
    monkeypatch.setattr(parent, "take_back", heed("taken back", iter([True, True])))
    await run(order, lambda: next(told, manners[-1]))
    assert asked == ["taken back", "gives way", "gives way", "taken back"]


async def test_a_child_ends_with_whoever_waits_for_it(order, child, tmp_path):
    """A cancelled merge kills the child before it returns."""
    child("open(os.path.join(os.path.dirname(__file__), 'pid'), 'w').write(f'{os.getpid()}\\n')\ntime.sleep(1000)")
    path = tmp_path / "pid"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, order)
        while not path.exists() or not path.read_text().endswith("\n"):
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)
