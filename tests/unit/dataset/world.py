"""A source, a data directory and a node's datasets, for tests of the library and its databases."""

import random
import shutil
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from gossipkv.dataset.library import Library, LibraryPorts
from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.trio_world import real
from gossipkv.node.directory import DataDirectory
from gossipkv.settings.datasets import DatasetSettings
from tests.unit.dataset.sources import BUILD_MEMORY, lines, put_version
from tests.unit.processes.started import started_by

# At that throttle each file takes half a second: together they outlast any look at the build, and the file that is
# being read when the throttle is lifted ends soon.
SLOW_FILE = b"a\t1\n" * 1000
SLOW_FILES = [SLOW_FILE] * 40
SLOWLY = 2 * len(SLOW_FILE)


class World:
    def __init__(self, root):
        self.root = root
        self.source = root / "source"
        self.source.mkdir()
        self.files = RealFiles()
        self.requests = Counter()
        self.read = set()  # The versions, by database and name, that are requested all the time.
        self.changes = []
        self.defects = []  # The databases that a defect is expected to end.
        self.tables = set()  # The names that tables have.

    def put(self, name, *contents, database="db"):
        """Put a version in one step, as careful writers do."""
        place = self.root / "making"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        put_version(RealFiles(), place, name, contents or [lines(a=name)], database)
        (self.source / database).mkdir(exist_ok=True)
        (place / database / name).rename(self.source / database / name)

    def count_requests(self, database, version):
        """Return the count of requests; a version that is being read has more at every look."""
        self.requests[database, version] += (database, version) in self.read
        return self.requests[database, version]

    async def read_for_a_while(self, library, name):
        """Request a version for ten looks of the library, and assert that it stays."""
        version = library.version("db", name)
        self.read.add(("db", name))
        while self.requests["db", name] < 10:
            assert library.version("db", name) is version
            await trio.sleep(0.01)
        self.read.clear()
        return version

    @asynccontextmanager
    async def node(self, cluster=None, **settings):
        """Run a library that ends as a node does; `cluster` is passed on to the library."""
        usual = {"source": str(self.source), "refresh_period": 0, "build_memory": BUILD_MEMORY, "build_lanes": 1}
        with DataDirectory.open(self.root / "data", self.files, cluster="test", random=random.Random(1)) as directory:
            library = Library(
                directory.store,
                DatasetSettings(**usual | settings),
                real(),
                LibraryPorts(
                    on_change=lambda: self.changes.append(library.held()),
                    requests=self.count_requests,
                    is_table=self.tables.__contains__,
                ),
                may_write=directory.silence is None,
                cluster=cluster,
            )
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(library.run)
                    yield library
                    nursery.cancel_scope.cancel()
                found = [name for name, database in library._databases.items() if database.defect_trouble is not None]
                assert found == self.defects
            finally:
                library.close()


async def until(condition):
    """Wait until the condition holds; a hang here fails the test."""
    with trio.fail_after(200):
        while not condition():
            await trio.sleep(0.01)


async def active(library, name, database="db"):
    await until(lambda: library.active(database) is not None and library.active(database).name == name)


async def amid_its_build(library, name):
    """Wait until the build of that version has read something."""
    await until(lambda: library.status()["db"]["versions"].get(name, {}).get("progress", {}).get("read_bytes"))


def lift_the_throttle(library):
    """Let builds read at full speed from now on."""
    library._shared.loads._bytes_per_second = 0
    library._shared.loads._count(0)


def state(library, name, database="db"):
    version = library.status()[database]["versions"].get(name)
    return None if version is None else version["state"]


def get(library, key, database="db"):
    for file in library.active(database).files:
        found = file.get(key)
        if found is not None:
            return found
    return None


def builds():
    """Return the processes of builds, each started by one of the children."""
    return [build for child in children() for build in started_by(child)]


def children():
    """Return the child processes that build."""
    return [
        int(pid)
        for task in Path("/proc/self/task").iterdir()
        for pid in _read(task / "children").split()
        if "gossipkv.dataset.build.build_child" in _read(Path(f"/proc/{pid}/cmdline"))
    ]


def _read(path):
    """Return the text of a file, or nothing if its thread or process has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
