"""The child process alone: its order, pace, memory and leash."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gossipkv.dataset.build.job import BuildJob, BuildOrder
from gossipkv.dataset.local.version import open_version
from gossipkv.environment.real_files import RealFiles
from gossipkv.processes.child import VARIABLES
from gossipkv.processes.program import order_line, read_order
from tests.unit.dataset.sources import BUILD_MEMORY
from tests.unit.processes.started import is_running, started_by

COMMAND = [sys.executable, "-P", "-m", "gossipkv.dataset.build.build_child"]


@pytest.fixture
def start():
    """Return a function that starts a child with its order, and returns the process and the held end of its leash."""
    started = []

    def start(job, memory_bytes=BUILD_MEMORY, bytes_per_second=0):
        leash, held = os.pipe()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **VARIABLES}
        child = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, pass_fds=[leash]
        )
        os.close(leash)
        child.stdin.write(order_line(BuildOrder(job, memory_bytes, bytes_per_second, leash)))
        child.stdin.flush()
        child.leash = leash
        started.append((child, held))
        return child, held

    yield start
    for child, held in started:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
        with contextlib.suppress(OSError):  # A test may have closed it.
            os.close(held)


def last_word(child):
    """Return the last line of the build and its exit status; no further build is ordered."""
    child.stdin.close()
    *_, said, empty, ended = child.stdout.read().splitlines()
    assert (empty, child.wait()) == (b"", 0)
    return json.loads(said), json.loads(ended)["ended"]


def next_word(child):
    """Return the first line of the build after its process id."""
    while "started" in (word := json.loads(child.stdout.readline())):
        pass
    return word


def test_an_order_is_one_line():
    order = BuildOrder(BuildJob("db", "v", "d", (), "/x", 1), 1, 2, 3)
    assert order_line(order).count(b"\n") == 1
    assert read_order(order_line(order), BuildOrder) == order


def test_it_builds_and_tells_how_much_memory_that_took(job, start):
    """The exit status is 0, and the version opens."""
    one = job([b"a\t1\n", b"b\t2\n"])
    child, _ = start(one)
    said, status = last_word(child)
    assert said["done"] > 1 << 20
    assert status == 0
    version = open_version(RealFiles(), Path(one.directory), "db", "v1")
    assert version.records == 2
    version.close()


def test_an_error_is_its_last_word(job, start):
    """The error comes with its details, and the status is 1."""
    child, _ = start(job([b"a\t1\nwrong\n"]))
    said, status = last_word(child)
    kind, message, details = said["error"]
    assert (kind, details["line"], details["offset"]) == ("SourceError", 2, 4)
    assert "line 2" in message
    assert status == 1


def test_too_little_memory_is_refused_with_the_least_that_would_do(job, start):
    """The refusal comes before anything is read."""
    child, _ = start(job([b"a\t1\n"]), memory_bytes=8 << 20)
    said, _ = last_word(child)
    kind, message, details = said["error"]
    assert kind == "ConfigError"
    assert "build_memory is 8,388,608 bytes; this build needs at least" in message
    assert details["needed_bytes"] > 16 << 20


def test_the_pace_is_told_and_can_be_changed(job, start):
    """A child that would take an hour finishes at once when the pace is lifted."""
    one = job([b"a\t1\n" * 500_000])
    child, _ = start(one, bytes_per_second=500)
    assert "progress" in next_word(child)
    assert not select.select([child.stdout], [], [], 0.3)[0]
    # The child sleeps for the chunk that it has taken, so a second child gets its new pace in time.
    child.kill()
    child.stdout.read()  # Wait until the build has ended as well.
    for name in os.listdir(one.directory):
        (Path(one.directory) / name).unlink()
    child, _ = start(one, bytes_per_second=1_000_000)
    assert "progress" in next_word(child)
    child.stdin.write(b"1000000000\n")
    child.stdin.flush()
    assert "done" in last_word(child)[0]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_the_child_dies_with_its_node(job, start, is_stopped):
    """Child and build end at once, whether the build sleeps for an hour or both are stopped."""
    child, held = start(job([b"a\t1\n" * 500_000]), bytes_per_second=100)
    assert "progress" in next_word(child)
    (build,) = started_by(child.pid)
    if is_stopped:
        os.kill(build, signal.SIGSTOP)
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
    assert child.poll() is None
    os.close(held)
    assert child.wait(timeout=60) == -signal.SIGKILL
    wait_until_gone(build)


def wait_until_gone(process):
    deadline = time.monotonic() + 60
    while is_running(process):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_build_after_the_other(job, start):
    """Each build has a process and a memory peak of its own; a late pace has no effect."""
    large = job([b"".join(b"%d\t%s\n" % (n, b"v" * 90) for n in range(300_000))])
    small = [job([b"a\t1\n" * 10_000], name=name) for name in ("v2", "v3")]
    child, _ = start(large)
    told = [said_until_end(child)]
    for one in small:
        child.stdin.write(b"1\n" + order_line(BuildOrder(one, BUILD_MEMORY, 0, child.leash)))
        child.stdin.flush()
        told.append(said_until_end(child))
    assert [said["ended"] for said in told] == [0, 0, 0]
    assert len({said["started"] for said in told} | {child.pid}) == 4
    assert told[0]["done"] > max(told[1]["done"], told[2]["done"]) + (4 << 20)


def test_a_build_that_is_killed_is_told_and_the_next_one_goes_on(job, start):
    """The third of four builds is killed."""
    child, _ = start(job([b"a\t1\n"]))
    ends = [said_until_end(child)["ended"]]
    for number, pace in ((2, 0), (3, 100), (4, 0)):
        one = job([b"a\t1\n" * 500_000], name=f"v{number}")
        child.stdin.write(order_line(BuildOrder(one, BUILD_MEMORY, pace, child.leash)))
        child.stdin.flush()
        if pace:
            os.kill(json.loads(child.stdout.readline())["started"], signal.SIGKILL)
        ends.append(said_until_end(child)["ended"])
    assert ends == [0, 0, -signal.SIGKILL, 0]


def said_until_end(child):
    words = [{}]
    while "ended" not in words[-1]:
        line = child.stdout.readline()
        words.append(json.loads(line) if line.strip() else {})
    return {name: value for word in words for name, value in word.items()}


def test_a_node_that_died_before_the_child_was_ready_is_noticed(job, start):
    """The leash is checked after the kernel was told to watch it."""
    one = job([b"a\t1\n" * 500_000])
    leash, held = os.pipe()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, pass_fds=[leash]
    ) as child:
        os.close(leash)
        os.close(held)
        child.stdin.write(order_line(BuildOrder(one, BUILD_MEMORY, 100, leash)))
        child.stdin.flush()
        assert child.wait(timeout=60) == -signal.SIGKILL


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_child_whose_parent_is_killed_does_not_outlive_it(job, tmp_path, is_stopped):
    """A parent is killed by SIGKILL; the pipe ends the child, even a stopped one."""
    one = job([b"a\t1\n" * 500_000])
    (tmp_path / "job").write_bytes(order_line(one))
    script = (
        "import sys, trio\n"
        "from gossipkv.dataset.build.parent import Loads, build_in_child\n"
        "from gossipkv.dataset.build.job import BuildJob\n"
        "from gossipkv.processes.program import read_order\n"
        "async def main():\n"
        "    job = read_order(open(sys.argv[1], 'rb').read(), BuildJob)\n"
        "    loads = Loads(1, 100)\n"
        "    async with loads.turn():\n"
        f"        await build_in_child(job, memory_bytes={BUILD_MEMORY}, loads=loads,\n"
        "                             waits_since_s=trio.current_time(),\n"
        "                             on_progress=lambda now: now.read_bytes and print('on', flush=True))\n"
        "trio.run(main)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "job"], stdout=subprocess.PIPE, env=environment
    ) as node:
        assert node.stdout.readline() == b"on\n"
        processes = started_by(node.pid)
        assert len(processes) == 2
        if is_stopped:
            for process in processes:
                os.kill(process, signal.SIGSTOP)
        node.kill()
    for process in processes:
        wait_until_gone(process)


@pytest.mark.parametrize("own_session", [True, False])
def test_it_gives_way_to_others(own_session):
    """The process lowers its priority, and its session's if no other process is in it and the kernel has autogroups."""
    script = (
        "import os; from pathlib import Path; from gossipkv.processes.niceness import NICENESS, give_way\n"
        "group = Path('/proc/self/autogroup')\n"
        "def session(): return group.read_text().split()[-1:] if group.exists() else []\n"
        "before = session(); give_way(os.getpid())\n"
        "assert os.nice(0) == NICENESS\n"
        f"assert session() == ([str(NICENESS)] if before and {own_session} else before), (before, session())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, start_new_session=own_session)


def test_what_was_given_way_is_taken_back():
    """Any user can raise the session's priority again; the process's needs a privilege."""
    script = (
        "import os, time; from pathlib import Path; from gossipkv.processes.niceness import give_way, take_back\n"
        "group = Path('/proc/self/autogroup')\n"
        "def session(): return group.read_text().split()[-1:] if group.exists() else []\n"
        "def until(done):\n"
        "    while not done(os.getpid()): time.sleep(0.01)\n"
        "until(give_way); given = session(); until(take_back)\n"
        "assert session() == (['0'] if given else []), session()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, start_new_session=True, timeout=200)


def test_it_runs_without_trio():
    """A child without Trio starts quickly and stays small."""
    script = "import sys, gossipkv.dataset.build.build_child; print([n for n in sys.modules if n.startswith('trio')])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    assert told.stdout == b"[]\n"
