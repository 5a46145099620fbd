"""The node's side of a build."""

import contextlib
import gc
import os
import signal
from collections import Counter
from functools import partial

import pytest
import trio

from gossipkv.dataset.build import parent
from gossipkv.dataset.build.parent import Loads, build_in_child
from gossipkv.dataset.build.trouble import BuildError
from gossipkv.errors import SourceChanged
from gossipkv.processes.usage import activity_of
from tests.unit.dataset.sources import BUILD_MEMORY
from tests.unit.dataset.world import SLOW_FILES, SLOWLY
from tests.unit.processes.started import is_running, started_by


async def perform(job, *, told=None, loads=None, memory_bytes=BUILD_MEMORY):
    loads = loads or Loads(1, 0)
    async with loads.turn():
        with trio.fail_after(60):
            return await build_in_child(
                job, memory_bytes=memory_bytes, loads=loads, on_progress=(told if told is not None else []).append,
                waits_since_s=trio.current_time(),
            )  # fmt: skip


async def test_a_build_tells_its_progress_and_its_memory(job):
    """The result is in the build's directory."""
    one, told = job([b"a\t1\n" * 10_000]), []
    assert 1 << 20 < await perform(one, told=told) <= BUILD_MEMORY
    assert told
    assert "_MANIFEST" in os.listdir(one.directory)


async def test_what_the_source_did_is_told_apart_from_what_went_wrong(job, tmp_path):
    """A changed source is an error of its own; a wrong line is lasting, too little memory is not."""
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
    """The error has the exit status and the last output, and is not lasting."""
    fake = tmp_path / "fake" / "gossipkv" / "dataset" / "build"
    fake.mkdir(parents=True)
    for place in (fake.parent.parent, fake.parent, fake):
        (place / "__init__.py").touch()
    (fake / "build_child.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path / "fake")
    with pytest.raises(BuildError, match=words) as caught:
        await perform(job([b"a\t1\n"]))
    assert not caught.value.trouble.lasting


async def test_cancellation_ends_the_child_and_its_build(job):
    """Both end before the function returns; at most an exiting build is left."""
    one, told = job([b"a\t1\n" * 500_000]), []
    loads = Loads(1, 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: perform(one, told=told, loads=loads))
        while not any(progress.read_bytes for progress in told):
            await trio.sleep(0.01)
        child, build = started_by(os.getpid())
        nursery.cancel_scope.cancel()
    assert started_by(os.getpid()) == []
    assert not is_running(child)
    with trio.fail_after(60):
        while is_running(build):
            await trio.sleep(0.01)


@pytest.mark.parametrize(("which", "children"), [(0, [3, 2]), (1, [5])], ids=["child", "build"])
async def test_what_dies_in_the_third_of_five_hurts_no_other(job, which, children):
    """The build fails and may be retried; the other builds continue, in a new child if necessary."""
    loads, begun, ends = Loads(1, SLOWLY), [], []

    async def build(number):
        one, seen = job(SLOW_FILES, name=f"v{number}"), set()

        def hear(progress):
            if progress.read_bytes and not seen:
                seen.add(number)
                begun.append(started_by(os.getpid()))
                if len(begun) == 3:
                    os.kill(begun[-1][which], signal.SIGKILL)
                else:
                    lift_the_throttle(loads)

        async with loads.turn():
            loads._bytes_per_second = SLOWLY  # The build must not end before it is looked at or killed.
            try:
                await build_in_child(one, memory_bytes=BUILD_MEMORY, loads=loads, on_progress=hear, waits_since_s=0.0)
            except BuildError as error:
                assert not error.trouble.lasting
                ends.append(error.message)
            else:
                assert "_MANIFEST" in os.listdir(one.directory)
                ends.append("done")

    with trio.fail_after(200):
        async with trio.open_nursery() as nursery:
            for number in range(1, 6):
                nursery.start_soon(build, number)
    assert ends == ["done", "done", "the build process was killed by signal 9", "done", "done"]
    assert list(Counter(child for child, _ in begun).values()) == children
    assert len({one for _, one in begun}) == 5
    assert started_by(os.getpid()) == []


def lift_the_throttle(loads):
    loads._bytes_per_second = 0
    loads._count(0)


async def test_a_child_that_died_while_it_was_idle_is_not_used(job):
    """Nothing reports the death of an idle child."""
    loads, told = Loads(2, 0), []
    async with loads.turn():
        await perform(job([b"a\t1\n"]), loads=loads)
        (idle,) = started_by(os.getpid())
        os.kill(idle, signal.SIGKILL)
        while is_running(idle):
            await trio.sleep(0.01)
        await perform(job([b"a\t1\n"], name="v2"), loads=loads, told=told)
    assert started_by(os.getpid()) == []


async def test_a_build_that_is_cancelled_hurts_no_other(job):
    """The next build gets a new child, and a build beside it continues."""
    loads, ends = Loads(2, 1000), []

    async def build(name):
        await perform(job([b"a\t1\n" * 500], name=name), loads=loads)
        ends.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(build, "v1")
        with trio.move_on_after(0.5):
            await perform(job([b"a\t1\n" * 500_000], name="v2"), loads=loads)
        nursery.start_soon(build, "v3")
    assert sorted(ends) == ["v1", "v3"]
    assert started_by(os.getpid()) == []


async def test_no_descriptor_is_left(job):
    await perform(job([b"a\t1\n"]))
    gc.collect()
    before = {*os.listdir("/proc/self/fd")}
    for number in range(3):
        await perform(job([b"a\t1\n"], name=f"good{number}"))
        with pytest.raises(BuildError):
            await perform(job([b"bad\n"], name=f"bad{number}"))
    assert {*os.listdir("/proc/self/fd")} <= before, "earlier tests' descriptors may be closed meanwhile"


async def test_loads_take_turns_and_share(autojump_clock):
    """Two loads run at once with half the rate each; a single load has the whole rate."""
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


def go_on(build, loads):
    """Continue a stopped build, unless it is over, at full speed."""
    lift_the_throttle(loads)
    with contextlib.suppress(ProcessLookupError):
        os.kill(build, signal.SIGCONT)


async def test_a_child_that_is_stopped_is_spoken_for(job, monkeypatch):
    """A stopped child is silent but not hung, so its last progress is repeated."""
    monkeypatch.setattr(parent, "WATCH_PERIOD_S", 0.01)
    told, stopped = [], []

    def hear(progress):
        told.append(progress)
        if not stopped and progress.read_bytes:
            _, build = started_by(os.getpid())
            os.kill(build, signal.SIGSTOP)
            stopped.extend([build, len(told)])
        elif stopped and len(told) == stopped[1] + 20:
            go_on(stopped[0], loads)

    loads = Loads(1, SLOWLY)
    with trio.fail_after(200):
        async with loads.turn():
            await build_in_child(
                job(SLOW_FILES), memory_bytes=BUILD_MEMORY, loads=loads, on_progress=hear, waits_since_s=0.0
            )
    assert len(told) > 20


async def test_a_child_that_waits_for_its_source_is_not_spoken_for(job, monkeypatch):
    """A child that reads slowly sleeps for hours: it has a processor and nothing to do."""
    monkeypatch.setattr(parent, "WATCH_PERIOD_S", 0.01)
    monkeypatch.setattr(parent, "activity_of", lambda process: looks.append(activity_of(process)) or looks[-1])
    one, loads = job([b"a\t1\n" * 500_000]), Loads(1, 1)
    told, looks = [], []
    means = {"memory_bytes": BUILD_MEMORY, "loads": loads, "on_progress": told.append, "waits_since_s": 0.0}
    build = partial(build_in_child, one, **means)
    with trio.fail_after(200):
        async with loads.turn(), trio.open_nursery() as nursery:
            nursery.start_soon(build)
            while len(looks) < 100 or any(look.is_held_up for look in looks[-100:]):
                await trio.sleep(0.01)
            told.clear()
            looks.clear()
            while len(looks) < 100:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert told == []


@pytest.mark.parametrize(
    ("priority", "served", "processor_s", "waited_s", "gives_way"),
    [
        ("auto", False, 1000.0, 0.0, False),  # The machine is free until something is served.
        ("auto", True, 0.9, 0.0, False),  # A small build is done by then.
        ("auto", True, 1.0, 0.0, True),
        ("auto", True, 3.0, 30.0, False),  # The child gets less than its part: its priority rises with the wait.
        ("auto", True, 4.0, 30.0, True),
        ("low", False, 0.0, 0.0, True),
        ("normal", True, 1000.0, 0.0, False),
    ],
)
def test_who_gives_way(priority, served, processor_s, waited_s, gives_way):
    loads = Loads(1, 0, priority)
    if served:
        loads.reads_begin.set()
    assert loads.give_way(processor_s, waited_s) == gives_way


async def test_the_priority_of_a_child_follows_what_it_had(job, monkeypatch):
    """The child gives way until its version has waited long; then its priority is restored as far as possible."""
    monkeypatch.setattr(parent, "WATCH_PERIOD_S", 0.01)
    monkeypatch.setattr(parent, "FREE_S", -1.0)
    asked = []
    monkeypatch.setattr(parent, "give_way", lambda _: asked.append("give_way") or len(asked) > 1)
    monkeypatch.setattr(parent, "take_back", lambda _: asked.append("take_back") or True)
    loads, stopped = Loads(1, SLOWLY), []

    def hear(progress):
        if progress.read_bytes and not loads.reads_begin.is_set():
            _, build = started_by(os.getpid())
            os.kill(build, signal.SIGSTOP)
            stopped.append(build)  # A later listing of processes may omit a live one.
            loads.reads_begin.set()
        elif asked == ["give_way", "give_way"]:
            monkeypatch.setattr(parent, "FREE_S", 1000.0)
        elif "take_back" in asked:
            go_on(*stopped, loads)

    with trio.fail_after(200):
        async with loads.turn():
            await build_in_child(
                job(SLOW_FILES), memory_bytes=BUILD_MEMORY, loads=loads, on_progress=hear,
                waits_since_s=trio.current_time(),
            )  # fmt: skip
    assert asked == ["give_way", "give_way", "take_back"]  # Give way is repeated after the kernel has refused it.
