"""A kill at every call that changes the disk, in real processes that build, publish, switch and start.

`CRASH_STRIDE` selects the calls: 1 is every call, 25 every twenty-fifth; `tests/smoke` has one of each kind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from gossipkv.errors import NotReady, Unavailable, UnknownDatabase
from tests.ci.cluster.node_process import PATIENCE_S, UNHURRIED, NodeProcess, connect, wait_for
from tests.nightly.crashes.crashing import Call, Order, Watch, careless, compile_shim

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Record = Callable[[str, str], None]
    Moments = Callable[[int], range]

pytestmark = pytest.mark.timeout(3600)

STRIDE = int(os.environ.get("CRASH_STRIDE", "1"))
SERVE = ("--refresh-period", "100ms", "--retire-after", "0s")
# No peer has to learn that a version goes before it goes. This line comes last, since it loads the node.
ALONE = "from gossipkv.node import sharing\nsharing.GRACE_INTERVALS = 0"
OLD = [{b"a": b"1", b"b": b"1"}, {b"c": b"1"}]
NEW = [{b"a": b"2", b"b": b"2"}, {b"c": b"2"}, {b"d": b"2"}]
CONTENT = {"v1": OLD, "v2": NEW}


class Place(NamedTuple):
    """A directory whose data is watched, beside an unwatched source."""

    root: Path

    @property
    def source(self) -> Path:
        return self.root / "source"

    @property
    def node(self) -> Path:
        return self.root / "node"

    @property
    def data(self) -> Path:
        return self.node / "data"

    def put(self, version: str) -> None:
        staged = self.source / "geo" / f"_{version}"
        staged.mkdir(parents=True)
        for number, records in enumerate(CONTENT[version]):
            lines = [b"%b\t%b\n" % record for record in records.items()]
            (staged / f"part-{number}").write_bytes(b"".join(lines))
        staged.rename(self.source / "geo" / version)

    def copy(self, name: str) -> Place:
        return Place(shutil.copytree(self.root, self.root.with_name(name)))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library that counts and kills."""
    return compile_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Make a place with only the first version at its source."""
    place = Place(tmp_path / "first")
    place.node.mkdir(parents=True)
    place.put("v1")
    return place


def run(*arguments: object, watch: Watch | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, including by a kill."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GOSSIPKV_")}
    command = [sys.executable, "-m", "gossipkv", *map(str, arguments)]
    environ |= {} if watch is None else watch.environment()
    return subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False, env=environ)


def is_only(place: Place, version: str) -> bool:
    """True if a version is the only one that is kept, and none is being built or removed."""
    # This is the order in which a version leaves, so that none is missed.
    kept, *passing = [list(place.data.glob(f"{name}/geo/*")) for name in ("datasets", "building", "removing")]
    return [path.name for path in kept] == [version] and not any(passing)


def serve(place: Place, newest: str, watch: Watch | None = None, changed: str = "") -> list[str]:
    """Run a node until it serves the newest version alone, or is killed; return the versions it answered from."""
    said: list[str] = []
    environ = {} if watch is None else watch.environment()
    with NodeProcess(
        place.node, *SERVE, source=place.source, changed=f"{UNHURRIED}\n{changed}\n{ALONE}", environ=environ
    ) as node:
        line = node.process.stdout.readline().decode()
        if line:
            ask(place, newest, line.split()[1], node, said)
            node.process.send_signal(signal.SIGTERM)
        ended = node.process.wait(PATIENCE_S)
        assert ended in {0, -signal.SIGKILL if watch else 0}, node.said()
    return said


def ask(place: Place, newest: str, address: str, node: NodeProcess, said: list[str]) -> None:
    """Ask until the newest version is the only one, or the node ends."""
    give_up_s = time.monotonic() + PATIENCE_S
    with contextlib.suppress(Unavailable), connect(address) as client:
        while node.process.poll() is None and not (newest in said and is_only(place, newest)):
            assert time.monotonic() < give_up_s, node.said()
            with contextlib.suppress(NotReady, UnknownDatabase):
                value, version = client.dataset("geo").get_with_version(b"a")
                assert value == CONTENT[version][0][b"a"]
                said.append(version)
            time.sleep(0.002)


def files_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir())


def restart(place: Place, newest: str, at_least: str | None) -> list[str]:
    """Check the state after a crash, start a node on it, and return the final files.

    The node must answer at once from a version at least as new as `at_least`, then from the newest, whole.
    """
    if (place.data / "NODE").exists():
        verify(place.data)
    with NodeProcess(place.node, *SERVE, source=place.source, changed=f"{UNHURRIED}\n{ALONE}") as node:
        node.ready()
        with connect(node.address) as client:
            geo = client.dataset("geo")
            if at_least is not None:
                value, version = geo.get_with_version(b"a")
                assert value == CONTENT[version][0][b"a"]
                assert version >= at_least
            wait_for(node.address, "geo", newest)
            everything = {key: value for records in CONTENT[newest] for key, value in records.items()}
            assert dict(geo.scan()) == everything
            assert geo.get_many(list(everything)) == list(everything.values())
        give_up_s = time.monotonic() + PATIENCE_S
        while not is_only(place, newest):
            assert time.monotonic() < give_up_s, node.said()
            time.sleep(0.01)
        assert node.stop() == 0
    verify(place.data)
    return files_in(place.data)


def verify(path: Path) -> None:
    """Fail unless `gossipkv verify` finds all bytes are as written."""
    done = run("verify", path)
    assert done.returncode == 0, done


def often(calls: int) -> range:
    return range(1, calls + 1, STRIDE)


def strike_all(place: Place, library: Path, newest: str, at_least: str | None, moments: Moments = often) -> str:
    """Kill at the calls that `moments` selects; judge the answers before each kill and the state after the restart.

    Returns the number of kills in words.
    """
    calm = place.copy("calm")
    watch = Watch(library, calm.node, calm.root / "notes")
    assert serve(calm, newest, watch)[-1] == newest
    assert careless(watch.trace) == []
    expected = files_in(calm.data)
    struck, calls = [], watch.count
    chosen = moments(calls)
    for at in chosen:
        tried = place.copy(f"at-{at}")
        watch = Watch(library, tried.node, tried.root / "notes", at)
        said = serve(tried, newest, watch)
        assert said == sorted(said)
        if watch.struck is None:  # There were fewer calls: two processes do not always meet in the same order.
            continue
        struck.append(watch.struck)
        evidence = f"CRASH_AT={at}: {watch.struck}, after answers from {sorted(set(said))}"
        assert restart(tried, newest, max(said, default=at_least)) == expected, evidence
        shutil.rmtree(tried.root)
    assert len(struck) >= len(chosen) * 0.9
    return f"killed at {len(struck)} of {calls} calls"


def test_the_first_start(place: Place, library: Path, record_property: Record) -> None:
    """The crashed start begins in an empty directory; a restart serves the version, and leaves no litter."""
    record_property("measured", strike_all(place, library, "v1", None))


def test_an_upgrade(place: Place, library: Path, record_property: Record) -> None:
    """A crash at any step from start to removal of the old version: the restart never answers from an older version."""
    serve(place, "v1")
    place.put("v2")
    record_property("measured", strike_all(place, library, "v2", "v1"))


def strike_builds(place: Place, library: Path, moments: Moments = often) -> str:
    """Kill `gossipkv build`: its output with _SUCCESS must be whole, and without it must be refused until removed.

    Returns the number of kills in words.
    """
    source, made = place.source / "geo" / "v1", place.node / "made"
    watch = Watch(library, place.node, place.root / "notes")
    assert run("build", source, made, watch=watch).returncode == 0
    assert careless(watch.trace) == []
    expected = files_in(made)
    whole = []
    chosen = moments(watch.count)
    for at in chosen:
        made = place.node / f"at-{at}" / "made"
        made.parent.mkdir()
        struck = Watch(library, place.node, place.root / f"notes-{at}", at)
        assert run("build", source, made, watch=struck).returncode == -signal.SIGKILL
        if (made / "_SUCCESS").exists():
            whole.append(at)
        else:
            is_there = made.exists() and any(made.iterdir())
            again = run("build", source, made)
            assert again.returncode == (3 if is_there else 0), again
            assert not is_there or b"not empty" in again.stderr
            if is_there:
                shutil.rmtree(made)
                assert run("build", source, made).returncode == 0
        verify(made)
        assert files_in(made) == expected
    assert len(whole) <= len(chosen) // 4
    return f"killed at {len(chosen)} of {watch.count} calls; whole after {len(whole)}"


def test_build(place: Place, library: Path, record_property: Record) -> None:
    record_property("measured", strike_builds(place, library))


NO_SYNC = "from gossipkv.environment.real_files import RealFiles\nRealFiles.{} = lambda self, _: None"
# This writes a document in place, instead of a temporary file, sync, rename and sync of the directory.
IN_PLACE = """
import os
from gossipkv.storage import document
def write_in_place(files, path, kind, body, *, format_number=1):
    descriptor = files.open(path, document.WRITE_NEW & ~os.O_EXCL)
    files.pwrite(descriptor, document.encode(kind, body, format_number=format_number), 0)
    files.sync(descriptor)
    files.close(descriptor)
document.write_document = write_in_place
"""


@pytest.mark.parametrize(("forgotten", "sign"), [("sync", "got its name before"), ("sync_directory", "in the end")])
def test_a_forgotten_sync_is_found(place: Place, library: Path, forgotten: str, sign: str) -> None:
    """No kill shows a missing sync, since the kernel keeps written data, but the trace shows it."""
    watch = Watch(library, place.node, place.root / "notes")
    serve(place, "v1", watch, NO_SYNC.format(forgotten))
    assert any(sign in line and "NODE" in line for line in careless(watch.trace)), careless(watch.trace)


def test_a_document_written_in_its_place_is_found(place: Place, library: Path) -> None:
    """A kill leaves half of the document, and the restart reports damage."""
    calm = place.copy("calm")
    watch = Watch(library, calm.node, calm.root / "notes")
    serve(calm, "v1", watch, IN_PLACE)
    at = 1 + watch.trace.index(Call("write", str(calm.data / "active" / "geo")))
    watch = Watch(library, place.node, place.root / "notes", at)
    serve(place, "v1", watch, IN_PLACE)
    assert watch.struck == Call("crash", "write", str(place.data / "active" / "geo"))
    with pytest.raises(AssertionError, match="damaged"):
        restart(place, "v1", None)


def test_the_order_of_calls_is_judged() -> None:
    """A name before its content, and a directory before its files, is wrong; removed and passing files are ignored."""
    order = Order()
    for call in [
        Call("create", "/d/a.tmp"), Call("write", "/d/a.tmp"), Call("rename", "/d/a.tmp", "/d/a"),
        Call("create", "/d/building/v"), Call("create", "/d/building/v/b"), Call("sync", "/d/building/v/b"),
        Call("rename", "/d/building/v", "/d/v"),
        Call("create", "/d/c"), Call("write", "/d/c"), Call("remove", "/d/c"),
    ]:  # fmt: skip
        order.feed(call)
    assert order.wrong == [
        "/d/a got its name before /d/a.tmp was synced",
        "/d/v got its name before /d/building/v/b was synced",
    ]
    assert (order.contents, order.names) == (set(), {"/d/a", "/d/v"})
