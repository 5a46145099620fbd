"""A source, a data directory and a node's datasets, for the tests of the library and its databases."""

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

# Files of which, at that throttle, each takes half a second: all of them longer than any look at the build is late, and
# the one that is being read when the throttle is lifted not long.
SLOW_FILE = b"a\t1\n" * 1000
SLOW_FILES = [SLOW_FILE] * 40
SLOWLY = 2 * len(SLOW_FILE)


class World:
    """A source, a data directory, and a node's worth of datasets."""

    def __init__(self, root):
        self.root = root
        self.source = root / "source"
        self.source.mkdir()
        self.files = RealFiles()
        self.requests = Counter()
        self.read = set()  # Database and version of what somebody asks for all the while.
        self.changes = []
        self.defects = []  # The databases that a defect is expected to end.
        self.tables = set()  # The names that tables have.

    def put(self, name, *contents, database="db"):
        """A version appears in one step, as careful writers do it."""
        place = self.root / "making"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        put_version(RealFiles(), place, name, contents or [lines(a=name)], database)
        (self.source / database).mkdir(exist_ok=True)
        (place / database / name).rename(self.source / database / name)

    def count_requests(self, database, version):
        """Requests so far: of what is being read more at every look, however long ago the last one was."""
        self.requests[database, version] += (database, version) in self.read
        return self.requests[database, version]

    async def read_for_a_while(self, library, name):
        """Whoever asks for a version all the while finds it there, at ten looks of the library at who does."""
        version = library.version("db", name)
        self.read.add(("db", name))
        while self.requests["db", name] < 10:
            assert library.version("db", name) is version
            await trio.sleep(0.01)
        self.read.clear()
        return version

    @asynccontextmanager
    async def node(self, cluster=None, **settings):
        """A running library; ends as a node does.  `cluster`: what it is told of others, as the library takes that."""
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
    """Waits until it holds; a test that hangs here has failed."""
    with trio.fail_after(200):
        while not condition():
            await trio.sleep(0.01)


async def active(library, name, database="db"):
    await until(lambda: library.active(database) is not None and library.active(database).name == name)


async def amid_its_build(library, name):
    """Waits until something of that version is read."""
    await until(lambda: library.status()["db"]["versions"].get(name, {}).get("progress", {}).get("read_bytes"))


def lift_the_throttle(library):
    """From now on builds read as fast as it goes."""
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
    """The processes of builds, each of which one of the children has started."""
    return [build for child in children() for build in started_by(child)]


def children():
    """The processes that this one has started to build."""
    return [
        int(pid)
        for task in Path("/proc/self/task").iterdir()
        for pid in _read(task / "children").split()
        if "gossipkv.dataset.build.build_child" in _read(Path(f"/proc/{pid}/cmdline"))
    ]


def _read(path):
    """What stands there; nothing of a thread, or a process, that has ended meanwhile."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
