"""The datasets of a node, with real child processes and a real data directory."""

import errno
import os
import shutil
import signal
import sys
import threading
from itertools import groupby

import trio

from gossipkv.dataset import library as library_module
from gossipkv.dataset.build.parent import build_in_child
from gossipkv.environment.real_files import RealFiles
from gossipkv.settings.databases import DatabaseSettings
from tests.unit.dataset.sources import lines
from tests.unit.dataset.world import (
    SLOW_FILES,
    SLOWLY,
    active,
    amid_its_build,
    children,
    get,
    lift_the_throttle,
    state,
    until,
)
from tests.world.faulty_files import FaultyFiles
from tests.world.logs import capture_logs


async def test_a_source_is_built_and_served(world):
    """Before the answers come, the database is known and shows its progress."""
    world.put("v1", lines(a=1, b=2), lines(a=3))
    async with world.node() as library:
        assert library.known("db")
        assert not library.known("other")
        (told,) = library.databases()
        assert (told["name"], told["kind"]) == ("db", "dataset")
        assert (told["version"], told["partitions"], told["time"], told["times"]) == (None, None, None, {})
        await active(library, "v1")
        (told,) = library.databases()
        assert (told["version"], told["partitions"], told["states"]) == ("v1", 2, {"v1": "ACTIVE"})
        assert (get(library, b"a"), get(library, b"b"), get(library, b"c")) == (b"3", b"2", None)
        told = library.status("db")["db"]
        assert told["active"] == "v1"
        version = told["versions"]["v1"]
        assert (version["records"], version["duplicates"], version["function"]) == (2, 1, "sequins")
        assert [row["partition"] for row in version["partitions"]] == [0, 1]
        assert sum(row["size_bytes"] for row in version["partitions"]) == version["size_bytes"]
        assert library.status("other") == {}


async def test_a_restart_serves_at_once_and_builds_nothing(world):
    """The source may be gone."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
    stamp = os.stat(world.root / "data/datasets/db/v1/part-00000.gkv").st_mtime_ns
    shutil.rmtree(world.source)
    with capture_logs() as logs:
        async with world.node() as library:
            assert get(library, b"a") == b"v1"
            assert state(library, "v1") == "ACTIVE"
            assert "No such file" in library.trouble()
    assert [line["event"] for line in logs] == ["source_unreadable"]
    assert os.stat(world.root / "data/datasets/db/v1/part-00000.gkv").st_mtime_ns == stamp


async def test_a_database_of_nothing_but_wrong_names_says_so(world):
    """Otherwise versions such as 1.0 would look like an empty database."""
    world.put("v1", database="good")
    world.put("1.0")
    async with world.node() as library:
        await active(library, "v1", "good")
        said = f"{world.source}/db/1.0: this is no valid name of a version: names match [-_a-zA-Z0-9]+"
        assert library.status()["db"]["error"].startswith(said)
        assert library.unready("db").startswith(said)
        world.put("10")
        await library.rescan()
        assert library.status()["db"]["error"] is None


async def test_each_outage_of_a_databases_source_is_logged_once(world):
    """The beginning of each outage is logged, and later listings are silent."""
    apart = {"db": DatabaseSettings(storage_options={})}
    with capture_logs() as logs:
        async with world.node(databases=apart) as library:
            for outages in (1, 2):
                await library.rescan()
                await library.rescan("db")
                assert sum(line["event"] == "source_unreadable" for line in logs) == outages
                assert "No such file" in library.status()["db"]["error"]
                (world.source / "db").mkdir()
                await library.rescan()
                assert library.status()["db"]["error"] is None
                (world.source / "db").rmdir()


async def test_a_node_without_a_source_serves_what_it_has(world):
    """`source` may be unset."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
    async with world.node(source=None) as library:
        assert get(library, b"a") == b"v1"
        assert await library.rescan() == {}


async def test_a_newer_version_is_switched_to_and_the_old_one_goes(world):
    """The old version is served by name until it has not been requested for long enough."""
    world.put("v1")
    async with world.node(retire_after=400) as library:
        await active(library, "v1")
        world.read.add(("db", "v1"))
        world.put("v2")
        assert await library.rescan() == {"db": ["v1", "v2"]}
        await active(library, "v2")
        assert get(library, b"a") == b"v2"
        assert state(library, "v1") == "RETIRING"
        old = await world.read_for_a_while(library, "v1")
        old.files[0].pin()
        await until(lambda: library.version("db", "v1") is None)
        assert old.files[0].get(b"a") == b"v1"  # A read that is under way is not disturbed.
        assert (world.root / "data/datasets/db/v1").exists()
        old.files[0].unpin()
        await until(lambda: not (world.root / "data/datasets/db/v1").exists())
        assert list(library.status()["db"]["versions"]) == ["v2"]
    seen = [[(held.name, held.active) for held in change] for change in world.changes]
    seen = [change for change, _ in groupby(seen)]
    assert seen == [
        [("v1", False)], [("v1", True)], [("v1", True), ("v2", False)], [("v1", False), ("v2", True)], [("v2", True)],
    ]  # fmt: skip


async def test_new_versions_are_found_by_and_by(world):
    """The source is listed every `refresh_period`, and by `refresh`, which does not wait."""
    async with world.node(refresh_period=50) as library:
        assert library.databases() == []
        world.put("v1")
        await active(library, "v1")
    async with world.node() as library:
        world.put("v2")
        library.refresh("db")
        await active(library, "v2")
        world.put("v1", database="other")
        library.refresh()
        await active(library, "v1", "other")


async def test_looks_that_are_asked_for_at_once_are_few(world):
    """A thousand requests cause two listings, for all databases or one, even an unknown one."""
    world.put("v1")
    world.files = FaultyFiles(RealFiles())
    async with world.node() as library:
        await active(library, "v1")
        before = world.files.counts["list_directory"]
        await library.rescan()
        one = world.files.counts["list_directory"] - before
        world.put("v2")
        answers = []

        async def ask(name):
            answers.append(await library.rescan(name))

        before = world.files.counts["list_directory"]
        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(ask, [None, "db", f"other-{number}"][number % 3])
        await active(library, "v2")
        assert all(answer.get("db", ["v1", "v2"]) == ["v1", "v2"] for answer in answers)
        assert sum("db" in answer for answer in answers) == 667
        assert world.files.counts["list_directory"] - before < 10 * one


async def test_versions_between_are_skipped_and_older_ones_never_built(world):
    world.put("v2")
    with capture_logs() as logs:
        async with world.node() as library:
            await active(library, "v2")
            for name in ("v1", "v3", "v4", "v5"):
                world.put(name)
            await library.rescan()
            await active(library, "v5")
            await library.rescan()
            await until(lambda: set(library.status()["db"]["versions"]) == {"v2", "v5"})
    assert [line["version"] for line in logs if line["event"] == "building"] == ["v2", "v5"]


async def test_a_bad_version_leaves_the_older_one_and_is_built_when_it_was_mended(world):
    """The status has file and line; an older version that is newer than the active one is built first."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
        world.put("v2")
        world.put("v3", lines(a=1), b"fine\t1\nbad\n")
        await library.rescan()
        await active(library, "v2")
        await until(lambda: state(library, "v3") == "ERROR")
        error = library.status()["db"]["versions"]["v3"]["error"]
        assert error["file"] == str(world.source / "db/v3/part-1")
        assert (error["line"], error["offset"]) == (2, 7)
        await library.rescan()
        await trio.sleep(0.2)
        assert state(library, "v3") == "ERROR"
        (world.source / "db/v3/part-1").write_bytes(b"fine\t1\n")
        await library.rescan()
        with trio.fail_after(60):
            while library.active("db").name != "v3":
                await trio.sleep(0.05)
        assert "error" not in library.status()["db"]["versions"]["v3"]


async def test_what_cannot_be_data_is_an_error_of_its_version(world):
    """A fifo among the files is named in the status, and the older version serves."""
    world.put("v1")
    world.put("v2")
    os.mkfifo(world.source / "db/v2/part-7")
    async with world.node() as library:
        await active(library, "v1")
        assert state(library, "v2") == "ERROR"
        assert "part-7" in library.status()["db"]["versions"]["v2"]["error"]["message"]
        (world.source / "db/v2/part-7").unlink()
        await library.rescan()
        await active(library, "v2")


async def test_why_nothing_is_served_yet(world, monkeypatch):
    """Clients that ask for a key get the reason in words."""
    may_build = trio.Event()

    async def build(job, **options):
        if job.version == "v3":
            await may_build.wait()
        return await build_in_child(job, **options)

    monkeypatch.setattr(library_module, "build_in_child", build)
    (world.source / "db").mkdir()
    async with world.node() as library:
        assert library.unready("db") == "the source has no version of it"
        assert not library.coming("db")
        (world.source / "db" / "v1").mkdir()
        await library.rescan()
        assert library.unready("db") == "version v1 waits for a data file"
        assert not library.coming("db")
        world.put("v2", b"no record\n")
        await library.rescan()
        await until(lambda: "is in error" in library.unready("db"))
        assert library.unready("db").startswith("version v2 is in error: ")
        assert library.unready("db").endswith("part-0: line 1, byte 0: the line 'no record' contains no TAB")
        assert not library.coming("db")
        await library.rescan()  # Afterwards no other listing is running that might find the next version first.
        world.put("v3")
        await library.rescan()
        assert library.unready("db") == "version v3 waits for its turn"
        assert library.coming("db")
        await until(lambda: library.unready("db") == "version v3 is being built, 0% done")
        assert library.coming("db")
        assert library.unserved() == ["db"]
        may_build.set()
        await active(library, "v3")
        assert library.unserved() == []


async def test_a_version_waits_for_its_success_file(world):
    world.put("v1")
    async with world.node(require_success_file=True) as library:
        await trio.sleep(0.05)
        version = library.status()["db"]["versions"]["v1"]
        assert (version["state"], version["waiting_for"]) == ("SEEN", "a file _SUCCESS")
        (world.source / "db/v1/_SUCCESS").touch()
        await library.rescan()
        await active(library, "v1")


async def test_a_version_that_vanishes_goes_on_being_served(world):
    """The version, the database or the source may vanish."""
    world.put("v1")
    async with world.node() as library:
        await active(library, "v1")
        for path in (world.source / "db/v1", world.source / "db", world.source):
            shutil.rmtree(path)
            await library.rescan()
            assert get(library, b"a") == b"v1"
            assert state(library, "v1") == "ACTIVE"
        assert library.databases()[0]["version"] == "v1"


async def test_a_database_that_was_never_built_is_forgotten_with_its_source(world):
    world.put("v1", b"bad\n")
    async with world.node() as library:
        await until(lambda: state(library, "v1") == "ERROR")
        shutil.rmtree(world.source / "db")
        await library.rescan()
        await until(lambda: library.databases() == [])
        assert not library.known("db")


class Hanging(RealFiles):
    """Files of which one directory never answers."""

    def __init__(self, path):
        self.path = str(path)
        self.waiting = threading.Event()
        self.free = threading.Event()

    def list_directory(self, path):
        if str(path).startswith(self.path):
            self.waiting.set()
            self.free.wait(60)
        return super().list_directory(path)


async def test_a_source_that_hangs_holds_up_nobody_else(world, monkeypatch):
    """Other databases are found, built and switched; the node starts and ends regardless."""
    monkeypatch.setattr(library_module, "FIRST_SCAN_S", 0.5)
    world.put("v1", database="slow")
    world.put("v1", database="quick")
    world.files = Hanging(world.source / "slow")
    try:
        async with world.node() as library:
            await until(world.files.waiting.is_set)
            await active(library, "v1", "quick")
            world.put("v2", database="quick")
            library.refresh()
            await active(library, "v2", "quick")
            assert library.active("slow") is None
    finally:
        world.files.free.set()


async def test_a_look_that_ends_after_its_database_vanished_brings_nothing_back(world):
    """The listing is older than the library's knowledge."""
    world.put("v1", b"bad\n")
    world.files = Hanging("no such path yet")
    try:
        async with world.node() as library:
            await until(lambda: state(library, "v1") == "ERROR" and not library._databases["db"].looking)
            world.files.path = str(world.source / "db" / "v1")
            library.refresh("db")
            await until(world.files.waiting.is_set)
            shutil.rmtree(world.source / "db")
            await library.rescan()
            await until(lambda: not library.known("db"))
            world.files.free.set()
            await until(lambda: not library._databases["db"].looking)
            assert not library.known("db")
    finally:
        world.files.free.set()


async def test_a_huge_and_a_broken_database_hold_up_nobody_else(world, monkeypatch):
    """While one database builds for ever and another fails repeatedly, a third is found, built, switched and read."""
    real = build_in_child
    begun = trio.Event()

    async def build(job, **options):
        if job.database == "huge":
            begun.set()
            await trio.sleep_forever()
        return await real(job, **options)

    monkeypatch.setattr(library_module, "build_in_child", build)
    world.put("v1", database="huge")
    world.put("v1", b"bad\n", database="broken")
    async with world.node(refresh_period=50) as library:
        await begun.wait()
        await until(lambda: state(library, "v1", "broken") == "ERROR")
        for version in ("v1", "v2"):
            world.put(version, database="small")
            await active(library, version, "small")
            assert get(library, b"a", "small") == version.encode()
        assert state(library, "v1", "huge") == "BUILDING"
        assert state(library, "v1", "broken") == "ERROR"


async def test_a_killed_child_is_started_again(world):
    """The build begins anew in an empty directory, and the status shows the error meanwhile."""
    world.put("v1", *SLOW_FILES)
    async with world.node(throttle_loads=SLOWLY) as library:
        await amid_its_build(library, "v1")
        (child,) = children()
        os.kill(child, signal.SIGKILL)
        lift_the_throttle(library)
        await until(lambda: state(library, "v1") == "ERROR")
        assert "was killed by signal 9" in library.status()["db"]["versions"]["v1"]["error"]["message"]
        await active(library, "v1")
        assert library.active("db").records == 1
        assert [library.counters()[f"builds_{what}"] for what in ("begun", "done", "failed")] == [2, 1, 1]


async def test_a_child_that_cannot_be_started_is_told_and_tried_again(world, monkeypatch):
    """The error has the system's message, and the next attempt succeeds."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    world.put("v1")
    async with world.node() as library:
        await until(lambda: state(library, "v1") == "ERROR")
        told = library.status()["db"]["versions"]["v1"]["error"]["message"]
        assert told == "the build process cannot be started: /nowhere/python: No such file or directory"
        monkeypatch.undo()
        await active(library, "v1")


async def test_progress_tells_how_far_it_is_and_what_remains(world):
    """The progress has bytes, records and seconds."""
    world.put("v1", *SLOW_FILES)
    async with world.node(throttle_loads=SLOWLY) as library:
        told = []

        def is_amid():
            version = library.status()["db"]["versions"].get("v1", {})
            told.extend([version["progress"]] if "progress" in version else [])
            return told and told[-1]["read_records"] > 0

        await until(is_amid)
    done = [one["done"] for one in told]
    assert done == sorted(done)
    assert 0 < done[-1] < 1
    assert told[-1]["read_records"] % 1000 == 0
    assert told[-1]["read_bytes"] > 4 * told[-1]["read_records"]
    assert told[-1]["remaining_s"] > 0


async def test_ending_in_the_middle_of_a_build_leaves_no_child_and_no_leftovers(world):
    """A cancellation ends the node."""
    world.put("v1", *SLOW_FILES)
    async with world.node(throttle_loads=SLOWLY) as library:
        await until(children)
        assert state(library, "v1") == "BUILDING"
    assert children() == []
    assert os.listdir(world.root / "data/building/db") == []


async def test_a_file_that_changes_while_it_is_read_makes_the_build_begin_anew(world):
    """The served version is the final state of the files, complete."""
    world.put("v1", *SLOW_FILES, b"b\t1\n")
    with capture_logs() as logs:
        async with world.node(throttle_loads=SLOWLY) as library:
            await amid_its_build(library, "v1")
            (world.source / f"db/v1/part-{len(SLOW_FILES)}").write_bytes(b"b\t2\nc\t3\n")
            lift_the_throttle(library)
            await active(library, "v1")
            assert (get(library, b"b"), get(library, b"c")) == (b"2", b"3")
            counters = library.counters()
            assert (counters["builds_begun"], counters["builds_done"], counters["builds_failed"]) == (2, 1, 1)
    assert "changed while the version was read" in next(
        line["reason"] for line in logs if line["event"] == "source_changed"
    )


async def test_a_file_that_is_added_while_the_others_are_read_is_noticed(world):
    """The listing is compared again after the build."""
    world.put("v1", *SLOW_FILES)
    async with world.node(throttle_loads=SLOWLY) as library:
        await amid_its_build(library, "v1")
        (world.source / f"db/v1/part-{len(SLOW_FILES)}").write_bytes(b"b\t2\n")
        lift_the_throttle(library)
        await active(library, "v1")
        assert library.active("db").partitions == len(SLOW_FILES) + 1
        assert get(library, b"b") == b"2"


async def test_a_version_that_changes_after_it_was_built_is_served_as_built(world):
    """The difference is logged once, and stays in the status while it lasts."""
    world.put("v1")
    with capture_logs() as logs:
        async with world.node() as library:
            await active(library, "v1")
            await library.rescan()
            assert library.status()["db"]["versions"]["v1"]["source_differs"] is False
            (world.source / "db/v1/part-0").write_bytes(b"a\tother\n")
            await library.rescan()
            await library.rescan()
            assert library.status()["db"]["versions"]["v1"]["source_differs"] is True
            await trio.sleep(0.2)
            assert get(library, b"a") == b"v1"
    assert [line["event"] for line in logs].count("source_changed") == 1


async def test_what_is_ignored_at_the_source_is_said_once(world):
    """Each ignored name is logged once, however often the source is listed."""
    (world.source / "not a name").mkdir()
    (world.source / "README").touch()
    (world.source / "_hidden").mkdir()
    world.put("v1")
    (world.source / "db" / "v1.tmp").mkdir()
    with capture_logs() as logs:
        async with world.node() as library:
            await active(library, "v1")
            await library.rescan()
    ignored = [line["reason"] for line in logs if line["event"] == "ignored"]
    assert len(ignored) == len(set(ignored)) == 3


async def test_a_database_has_settings_of_its_own(world):
    """A later change of the settings may mend a version in error."""
    world.put("v1", database="one")
    world.put("v1", database="two")
    wrong = {"one": DatabaseSettings(format="sequence")}
    async with world.node(databases=wrong) as library:
        await active(library, "v1", "two")
        await until(lambda: state(library, "v1", "one") == "ERROR")
        library.reconfigure({"one": DatabaseSettings(format="tsv")})
        await active(library, "v1", "one")
        assert get(library, b"a", "one") == b"v1"


async def test_a_pin_alone_tries_nothing_again(world):
    """A version in error stays so until a relevant setting changes."""
    world.put("v1", b"no tab\n")
    async with world.node(databases={"db": DatabaseSettings(format="tsv")}) as library:
        await until(lambda: state(library, "v1") == "ERROR")
        copy = library._databases["db"].lives["v1"].copy
        assert copy.tried is not None
        library.reconfigure({"db": DatabaseSettings(format="tsv", hold="v0")})
        assert copy.tried is not None
        library.reconfigure({})
        assert copy.tried is None


async def test_a_database_that_is_named_and_not_there(world):
    """With options of its own the database is looked for and reported missing; otherwise it is absent so far."""
    world.put("v1")
    named = {"later": DatabaseSettings(), "apart": DatabaseSettings(storage_options={})}
    async with world.node(databases=named) as library:
        assert library.known("apart")
        assert "No such file" in library.status("apart")["apart"]["error"]
        assert not library.known("never")
        world.put("v1", database="later")
        await library.rescan()
        await active(library, "v1", "later")


async def test_databases_named_are_looked_at_although_the_root_cannot_be_listed(world):
    """The way to a root may not allow listing it."""
    world.put("v1")
    world.files = Unlisted(world.source)
    async with world.node(databases={"db": DatabaseSettings()}) as library:
        assert "not allowed" in library.trouble()
        await active(library, "v1")


class Unlisted(RealFiles):
    """Files of which one directory may not be listed."""

    def __init__(self, path):
        self.path = path

    def list_directory(self, path):
        if str(path) == str(self.path):
            raise OSError(errno.EACCES, "not allowed", str(path))
        return super().list_directory(path)


async def test_it_is_told_since_when_a_version_waits(world):
    """The time counts from the first listing until the version serves; a built version has none."""
    world.put("v1", b"bad\n")
    async with world.node() as library:
        await until(lambda: state(library, "v1") == "ERROR")
        await until(lambda: library.status()["db"]["versions"]["v1"]["waited_s"] >= 0.2)
        world.put("v2")
        await library.rescan()
        assert library.status()["db"]["versions"]["v2"]["waited_s"] >= 0
        assert library.status()["db"]["versions"]["v1"]["waited_s"] >= 0.2
        await active(library, "v2")
        assert "waited_s" not in library.status()["db"]["versions"]["v2"]


async def test_so_many_databases_of_others_and_no_more(world, monkeypatch):
    """Each database costs tasks and any member may name thousands, so only the first are taken."""
    monkeypatch.setattr("gossipkv.dataset.library.MAX_HEARD", 3)
    async with world.node() as library:
        library.hear_of(["a", "b", "not a name"])
        await until(lambda: len(library.cores()) == 2)
        library.hear_of(["a", "b", "c", "d", "e"])
        await until(lambda: len(library.cores()) == 3)
        library.hear_of(["d"])
        assert sorted(core.name for core in library.cores()) == ["a", "b", "c"]
        assert not library.known("a")
