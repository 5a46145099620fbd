"""A node's datasets over a simulated disk and clock, driven step by step: after each call everything has settled.

The library, its databases and the data directory are the real ones.  Simulated are the disk, which loses power, the
clock, which jumps, and the child processes: a build is `perform` in this process, and waits until it is released.  Work
for worker threads is done at once, so that a run is a function of its steps.

Trio runs in a thread of its own, since a state machine's steps are plain functions.
"""

import os
import random
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial
from unittest.mock import patch

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.build.trouble import BuildError, Trouble
from gossipkv.dataset.cluster.core import DatabaseCore
from gossipkv.dataset.cluster.part import PartInCluster
from gossipkv.dataset.library import ChildProcesses, Library, LibraryPorts
from gossipkv.dataset.lifecycle import copy_states
from gossipkv.dataset.lifecycle.version_states import VersionWord
from gossipkv.dataset.scrub.parent import read_back_in_child
from gossipkv.environment.trio_world import real
from gossipkv.errors import GossipKVError, SourceChanged, SourceError
from gossipkv.node.directory import DataDirectory
from gossipkv.settings.databases import DatabaseSettings
from gossipkv.settings.datasets import DatasetSettings
from gossipkv.storage.document import read_document
from tests.unit.dataset.sources import MEMORY_BYTES, put_version
from tests.world.faulty_files import CHANGING, Crash, Fault, FaultyFiles
from tests.world.logs import capture_logs
from tests.world.simulated_files import SimulatedFiles

RETIRE_MS = 1_000
STEP_S = RETIRE_MS / 4_000  # Requests are counted this often.
DATABASE = "db"
MAX_CHANGES = 50  # The maximum of changes of the served versions in one step.


async def at_once(function, *args, **_options):
    await trio.lowlevel.checkpoint()
    return function(*args)


class ScriptedCore(DatabaseCore):
    """A core with scripted verdicts, whose only effects are kept refutations."""

    def __init__(self, node, lives, core):
        super().__init__(core.name, core.membership, core._convergence, core.terms)
        self._node, self._lives = node, lives

    def step(self, *, now_ms):
        """Return the pending effects; members are never asked."""
        assert now_ms >= 0
        effects, self._effects = self._effects, []
        return effects

    wakes_at_ms = None

    def heard(self):
        return self._node.heard

    def identity(self, version):
        return self._lives[version].identity

    def active_elsewhere(self, version):
        """Return None: no member has a newer version active."""

    def share(self, version):
        return self._node.verdicts.share(version)

    def passed(self, version):
        return self._node.verdicts.passed(version)

    def may_switch(self, version):
        return self._node.verdicts.may_switch(version)

    def is_short(self, version):
        return self._node.verdicts.is_short(version)

    def may_retire(self, version):
        return self._node.verdicts.may_retire(version)

    def refuted(self, digest):
        return self._node.verdicts.refuted(digest)


class ScriptedPart(PartInCluster):
    """A part in the cluster with a scripted core."""

    def __init__(self, node, name, lives, copies, shared):
        super().__init__(name, lives, copies, shared)
        self.core = ScriptedCore(node, lives, self.core)

    def step(self, active, hold, *, now_ms):
        """Report that the versions for clients may have changed."""
        super().step(active, hold, now_ms=now_ms)
        return True

    def switched(self, version):
        """Ignore the switch."""

    def is_mended(self, active):
        return False


class SimulatedNode:
    def __init__(self, verdicts=None):
        """`verdicts` are the decisions of the cluster; None means a node alone."""
        self.heard = {}
        self.verdicts = verdicts
        self.disk = SimulatedFiles()
        self.disk.make_directory("/source")
        self.disk.sync_directory("/")
        self.clock = MockClock()
        self.databases = {}
        self.requests = Counter()
        self.answers = []  # (active version, hold at that time), over all restarts
        self.builds = []  # Each version of which a build has begun.
        self.gate = None
        self.library = self.files = None
        self.down = True
        self.status = {"versions": {}}
        self._errors = []
        self._stack = ExitStack()
        self._lines = self._stack.enter_context(capture_logs())
        self._stack.enter_context(patch.object(trio.to_thread, "run_sync", at_once))
        self._stack.enter_context(
            patch.multiple(copy_states, FIRST_RETRY_MS=0, LAST_RETRY_MS=0, LAST_DAMAGE_PAUSE_MS=0)
        )
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def close(self):
        """End the node, also after a failed test, since its patches would affect later tests."""
        try:
            self.stop()
        finally:
            self._token.run_sync_soon(self._end.set)
            self._thread.join()
            self._stack.close()

    # The source

    def put(self, name, contents):
        """Add or replace a version in one visible step."""
        self.withdraw(name)
        put_version(self.disk, "/source", name, contents, DATABASE)

    def withdraw(self, name):
        """Remove a version; the last one takes the database with it."""
        place = f"/source/{DATABASE}"
        with suppress(FileNotFoundError):
            for entry in self.disk.list_directory(f"{place}/{name}"):
                self.disk.unlink(f"{place}/{name}/{entry.name}")
            self.disk.sync_directory(f"{place}/{name}")
            self.disk.remove_directory(f"{place}/{name}")
            self.disk.sync_directory(place)
            if not self.disk.list_directory(place):
                self.disk.remove_directory(place)
            self.disk.sync_directory("/source")

    # The node

    def start(self):
        """Start from the disk; return when the node has started or crashed."""
        self.files = FaultyFiles(self.disk)
        self.down = False
        self._call(self._start)

    def stop(self):
        if not self.down:
            self._call(self._stop)

    def crash_at(self, at, action):
        """Cut the power at the `at`-th change of the disk from now."""
        self.files.strike(Fault(at, action, kinds=CHANGING))

    def lose_power(self, seed):
        """Cut the power now; unsynced data may be lost."""
        restarted = self.disk.power_loss(seed)
        self.stop()
        self.disk = restarted

    def look(self):
        self._call(self._look)

    def wait(self, seconds=STEP_S):
        """Let time pass: a quarter of `retire_after` unless told otherwise."""
        self._call(self._wait, seconds)

    def log(self, event):
        return [line for line in self._lines if line["event"] == event]

    def hold(self, name):
        self.hold_from_now(name)
        self._call(self._hold)

    def hold_from_now(self, name):
        """Change only the settings, which the next start reads."""
        self.databases = {DATABASE: DatabaseSettings(hold=name)}

    def order(self, version, *, here=False):
        """Give an operator's order; return its result or the error."""
        told = []
        self._call(self._order, version, here, told)
        return told[0]

    def damaged(self, name, error):
        self._call(self._damaged, name, error)

    def spoil(self, path):
        """Overwrite the first bytes of a file."""
        descriptor = self.disk.open(path, os.O_RDWR)
        self.disk.pwrite(descriptor, b"dust", 0)
        self.disk.close(descriptor)

    def decide_again(self):
        self._call(self._do, lambda: self.library.wake(DATABASE))

    def hear(self, **identities):
        self.heard = identities
        self._call(self._do, lambda: (self.library.hear_of([DATABASE]), self.library.wake(DATABASE)))

    def note_owners(self, name, *owners):
        self._call(self._do, lambda: self.database.switching.note_owners(name, owners))

    def refute(self, digest, *functions):
        core = self.database.part.core
        self._call(self._do, lambda: ([core.found_stray(digest, each) for each in functions], self.database.wake()))

    def drop(self, name, partitions):
        self._call(self._do, lambda: self.database.copies.drop_partitions(name, partitions))

    @property
    def database(self):
        return self.library._databases[DATABASE]

    def finish(self):
        """Let the running build do its work."""
        self._call(self._finish)

    # Observations

    @property
    def active(self):
        """The version for requests that name none."""
        found = self.library.active(DATABASE)
        return None if found is None else found.name

    @property
    def kept(self):
        return {held.name for held in self.library.held() if held.here}

    @property
    def states(self):
        return {name: VersionWord(told["state"]) for name, told in self.status["versions"].items()}

    def value(self, key):
        for file in self.library.active(DATABASE).files:
            if (found := file.get(key)) is not None:
                return found
        return None

    def on_disk(self):
        """Return the active, the newest and the built versions that a start would find."""
        try:
            body = read_document(self.disk, f"/data/active/{DATABASE}", "ACTIVE")
        except FileNotFoundError:
            body = {"version": None, "newest": None}
        try:
            built = {entry.name for entry in self.disk.list_directory(f"/data/datasets/{DATABASE}")}
        except FileNotFoundError:
            built = set()
        return body["version"], body["newest"], built

    # In Trio's thread

    def _run(self):
        with suppress(BaseExceptionGroup):
            trio.run(self._main, clock=self.clock)

    async def _main(self):
        self._token = trio.lowlevel.current_trio_token()
        self._end = trio.Event()
        async with trio.open_nursery() as self._nursery:
            self._ready.set()
            await self._end.wait()

    def _call(self, function, *args):
        self._changes = 0
        trio.from_thread.run(self._settled, function, *args, trio_token=self._token)
        if self._errors:
            error = self._errors.pop()
            while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            raise error

    async def _settled(self, function, *args):
        await function(*args)
        await wait_all_tasks_blocked()
        for line in self.log("internal_error"):  # Raise it once, in the step that caused it.
            self._errors.append(line["exc_info"])
            self._lines.remove(line)
        if not self.down:
            self.status = self.library.status().get(DATABASE, {"versions": {}})

    async def _start(self):
        started = trio.Event()
        self._nursery.start_soon(self._live, started)
        await started.wait()

    async def _live(self, started):
        """Run one life of the process, which its scope ends."""
        self.requests.clear()
        with trio.CancelScope() as self._scope:
            try:
                with DataDirectory.open("/data", self.files, cluster="test", random=random.Random(1)) as directory:
                    settings = DatasetSettings(
                        source="/source",
                        refresh_period=0,
                        retire_after=RETIRE_MS,
                        scrub_period=0,
                        databases=self.databases,
                    )
                    self.library = Library(
                        directory.store,
                        settings,
                        real(),
                        LibraryPorts(on_change=self._note, requests=lambda _, name: self.requests[name]),
                        children=ChildProcesses(self._build, read_back_in_child),
                        **({} if self.verdicts is None else {"make_part": partial(ScriptedPart, self)}),
                    )
                    try:
                        async with trio.open_nursery() as nursery:
                            await nursery.start(self.library.run)
                            started.set()
                            await trio.sleep_forever()
                    finally:
                        self.library.close()
            except* Crash:
                pass
            except* Exception as group:  # noqa: BLE001  # Whatever it is, it is raised in the step that caused it.
                self._errors.append(group)
        self.down = True
        started.set()

    async def _stop(self):
        self._scope.cancel()

    async def _look(self):
        self._nursery.start_soon(self._rescan, self.library)

    async def _rescan(self, library):
        with suppress(Crash, RuntimeError):  # The node may end meanwhile, which closes its nursery.
            await library.rescan()

    async def _wait(self, seconds):
        self.clock.jump(seconds)

    async def _hold(self):
        self.library.reconfigure(self.databases)

    async def _order(self, version, here, told):
        try:
            told.append(await self.library.order(DATABASE, version, here=here))
        except GossipKVError as error:
            told.append(error)

    async def _damaged(self, name, error):
        self.library.damaged(DATABASE, name, error)

    async def _do(self, action):
        action()

    async def _finish(self):
        self.gate.set()

    async def _build(self, job, **_options):
        self.builds.append(job.version)
        self.gate = trio.Event()
        await self.gate.wait()
        try:
            perform(job, self.files, BuildResources(MEMORY_BYTES))
        except SourceChanged:
            raise
        except SourceError as error:
            raise BuildError(Trouble(error.message)) from error
        return 0

    def _note(self):
        self._changes += 1
        assert self._changes < MAX_CHANGES, "it goes round in circles"
        active = self.active
        if not self.answers or self.answers[-1][0] != active:
            self.answers.append((active, self.databases[DATABASE].hold if self.databases else None))
