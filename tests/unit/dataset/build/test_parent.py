"""The node's side of a build."""

import os
from pathlib import Path

import pytest
import trio

from gossipkv.dataset.build.parent import BuildError, Loads, build_in_child
from gossipkv.errors import SourceChanged


async def perform(job, *, told=None, loads=None, memory_bytes=64 << 20):
    """Builds it alone."""
    loads = loads or Loads(1, 0)
    async with loads.turn():
        with trio.fail_after(60):
            return await build_in_child(
                job, memory_bytes=memory_bytes, loads=loads, on_progress=(told if told is not None else []).append
            )


async def test_a_build_tells_its_progress_and_its_memory(job):
    """And leaves the result in its directory."""
    one, told = job([b"a\t1\n" * 10_000]), []
    assert 1 << 20 < await perform(one, told=told) <= 64 << 20
    assert told
    assert "_MANIFEST" in os.listdir(one.directory)


async def test_what_the_source_did_is_told_apart_from_what_went_wrong(job, tmp_path):
    """A changed source is another error; a wrong line lasts; too little memory does not."""
    with pytest.raises(BuildError) as caught:
        await perform(job([b"bad\n"]))
    assert caught.value.trouble.lasting
    assert caught.value.details["line"] == 1
    with pytest.raises(BuildError, match="build_memory") as caught:
        await perform(job([b"a\t1\n"], name="v2"), memory_bytes=1 << 20)
    assert not caught.value.trouble.lasting
    one = job([b"a\t1\n"], name="v3")
    (tmp_path / "source/db/v3/part-0").write_bytes(b"a\t12\n")
    with pytest.raises(SourceChanged):
        await perform(one)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was killed by signal 9"),
        ("raise SystemExit(3)", "ended with status 3"),
        ("raise RuntimeError('a defect')", "ended with status 1: RuntimeError: a defect"),
        ("print('{\"done\": 1}'); raise SystemExit(3)", "ended with status 3"),
        ("print('{\"pro')", "ended with status 0"),
        ("import sys; sys.stderr.write('x' * 10**6 + '\\nlast words\\n'); raise SystemExit(4)", "status 4: last words"),
    ],
)
async def test_a_child_that_ends_without_its_last_word_is_an_error(job, monkeypatch, tmp_path, code, words):
    """With how it ended and what it said last; another attempt may help."""
    fake = tmp_path / "fake" / "gossipkv" / "dataset" / "build"
    fake.mkdir(parents=True)
    for place in (fake.parent.parent, fake.parent, fake):
        (place / "__init__.py").touch()
    (fake / "child.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path / "fake")
    with pytest.raises(BuildError, match=words) as caught:
        await perform(job([b"a\t1\n"]))
    assert not caught.value.trouble.lasting


async def test_cancellation_ends_the_child(job):
    """Before the function returns."""
    one, told = job([b"a\t1\n" * 500_000]), []
    loads = Loads(1, 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: perform(one, told=told, loads=loads))
        while not told:
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert "gossipkv.dataset.build.child" not in commands()


def commands():
    """The command lines of all processes that this one has started."""
    pids = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    return "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in pids)


async def test_no_descriptor_is_left(job):
    """Pipes, leash and all, whether it went well or not."""
    await perform(job([b"a\t1\n"]))
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3):
        await perform(job([b"a\t1\n"], name=f"good{number}"))
        with pytest.raises(BuildError):
            await perform(job([b"bad\n"], name=f"bad{number}"))
    assert len(os.listdir("/proc/self/fd")) == before


async def test_loads_take_turns_and_share(autojump_clock):
    """Two at once; each has half; one alone has all."""
    loads, running, most = Loads(2, 1000), 0, 0

    async def load():
        nonlocal running, most
        async with loads.turn():
            running += 1
            most = max(most, running)
            assert loads.share_bytes_per_second() == 1000 // running
            await trio.sleep(1)
            running -= 1

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(load)
            await trio.sleep(0.1 * number)
    assert most == 2
    assert Loads(2, 0).share_bytes_per_second() == 0
    assert Loads(2, 1).share_bytes_per_second() == 1


async def test_a_change_of_the_share_wakes_those_who_wait(autojump_clock):
    """Each time."""
    loads, woken = Loads(2, 1000), 0

    async def watch():
        nonlocal woken
        while True:
            await loads.share_changed()
            woken += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await trio.sleep(1)
        async with loads.turn():
            await trio.sleep(1)
        await trio.sleep(1)
        assert woken == 2
        nursery.cancel_scope.cancel()
