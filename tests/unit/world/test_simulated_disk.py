"""The simulated disk, the oracle and the real files show the same, before and after a power loss."""

import copy
import itertools
import os
import shutil
import tempfile

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import READ_WRITE_NEW
from tests.oracle import disk as oracle
from tests.world.simulated_files import SimulatedFiles
from tests.world.simulated_tree import File
from tests.world.sparse_bytes import BLOCK_BYTES

CAPACITY_BYTES = 5 * BLOCK_BYTES
SECTOR_BYTES = 8
FEW = 8  # The oracle tries every state, so at most this many changes may wait.

directories = st.sampled_from(["/d", "/e", "/d/f"])
names = st.sampled_from(["/a", "/b", "/d/a", "/d/b", "/e/a"])
paths = st.one_of(names, names, names, directories)
numbers = st.integers(0, 1000)
offsets = st.sampled_from([0, 3, 8, 13, BLOCK_BYTES - 4, BLOCK_BYTES, 2 * BLOCK_BYTES - 5])
contents = st.one_of(st.binary(max_size=20), st.sampled_from([b"x" * 8, bytes(9), b"yz" * 10]))
LONG = b"long" * (BLOCK_BYTES // 3)


def snapshot(files, nodes=None, above=""):
    """Return the content of a simulated disk in the oracle's form."""
    found = []
    nodes = {} if nodes is None else nodes
    for entry in files.list_directory(above or "/"):
        path = f"{above}/{entry.name}"
        if entry.kind == "directory":
            found += [(path, None, ""), *snapshot(files, nodes, path)]
        else:
            descriptor = files.open(path)
            content = files.pread(descriptor, 1 << 30, 0)
            assert len(content) == entry.size_bytes == files.size(descriptor)
            files.close(descriptor)
            found.append((path, content, files._node(path)))
    if above:
        return found
    first = {}
    for path, _, node in sorted(found, key=lambda each: each[0]):
        first.setdefault(node, path)
    return tuple(
        (path, content, first[node] if isinstance(node, File) else "")
        for path, content, node in sorted(found, key=lambda each: each[0])
    )


def snapshot_of_real(root):
    """Return the content of a real directory in the oracle's form."""
    first, found = {}, []
    paths = [os.path.join(above, name) for above, *inner in os.walk(root) for names in inner for name in names]
    for path in sorted(paths):
        name = path.removeprefix(root)
        if os.path.isdir(path):
            found.append((name, None, ""))
        else:
            with open(path, "rb") as file:
                found.append((name, file.read(), first.setdefault(os.stat(path).st_ino, name)))
    return tuple(found)


def outcome(operation, *arguments):
    """Return the result of an operation, or its error number."""
    try:
        return operation(*arguments)
    except OSError as error:
        return f"error {error.errno}"


def sync_all(disks):
    for number in range(len(disks.opened)):
        disks.sync(number)
    for path in ("/", "/d", "/e", "/d/f"):
        disks.sync_directory(path)


def write_all(disks):
    for number in range(len(disks.opened)):
        disks.write(number, 0, b"elsewhere")


def remove_all(disks):
    for path in ("/a", "/b", "/d/a", "/d/b", "/e/a"):
        disks.unlink(path)


class Disks(RuleBasedStateMachine):
    """The same operations on a simulated disk, the oracle and real files."""

    def __init__(self):
        super().__init__()
        self.files = SimulatedFiles(CAPACITY_BYTES, sector_bytes=SECTOR_BYTES)
        self.plain = oracle.Disk(CAPACITY_BYTES, SECTOR_BYTES)
        self.real = RealFiles()
        self.roots = tempfile.mkdtemp()
        self.root = tempfile.mkdtemp(dir=self.roots)
        self.opened = []  # Pairs of simulated and real descriptors.

    @initialize(content=st.sampled_from([b"", b"old and durable", bytes(12), LONG]))
    def begin(self, content):
        """Create files, one of them open, and directories; otherwise most operations would find nothing."""
        for path in ("/d", "/e"):
            self.both("make_directory", path)
        for path in ("/d/a", "/a"):
            self.open(path, READ_WRITE_NEW)
            self.write(len(self.opened) - 1, 0, content)
            self.sync(len(self.opened) - 1)
        self.close(0)
        for path in ("/", "/d"):
            self.sync_directory(path)

    def teardown(self):
        self.close_real()
        shutil.rmtree(self.roots)

    def close_real(self):
        for _, descriptor in self.opened:
            self.real.close(descriptor)
        self.opened = []

    def both(self, operation, *paths):
        expected = outcome(getattr(self.plain, operation), *paths)
        assert outcome(getattr(self.files, operation), *paths) == expected
        assert outcome(getattr(self.real, operation), *(self.root + path for path in paths)) == expected

    @rule(path=paths, flags=st.sampled_from([READ_WRITE_NEW, os.O_RDWR]))
    def open(self, path, flags):
        expected = outcome(self.plain.create if flags & os.O_CREAT else self.plain.open, path)
        simulated = outcome(self.files.open, path, flags)
        real = outcome(self.real.open, self.root + path, flags)
        if expected is None:
            self.opened.append((simulated, real))
        else:
            assert simulated == real == expected

    @precondition(lambda self: self.opened)
    @rule(number=numbers)
    def close(self, number):
        simulated, real = self.opened.pop(number % len(self.plain.opened))
        self.plain.opened.pop(number % len(self.plain.opened))
        self.files.close(simulated)
        self.real.close(real)

    @precondition(lambda self: self.opened)
    @rule(number=numbers, offset=offsets, data=contents)
    def write(self, number, offset, data):
        number %= len(self.opened)
        simulated, real = self.opened[number]
        landed = self.plain.write(number, offset, data)
        expected = None if landed == len(data) else "error 28"
        assert outcome(self.files.pwrite, simulated, data, offset) == expected
        self.real.pwrite(real, data[:landed], offset)

    @precondition(lambda self: self.opened)
    @rule(number=numbers, offset=offsets)
    def write_much(self, number, offset):
        """Write several blocks and sync; not all states of that many sectors can be tried."""
        self.write(number, offset, LONG)
        self.sync(number)

    @precondition(lambda self: self.opened)
    @rule(number=numbers, offset=offsets, size_bytes=st.sampled_from([0, 1, 8, 100, BLOCK_BYTES, 3 * BLOCK_BYTES]))
    def allocate(self, number, offset, size_bytes):
        number %= len(self.opened)
        simulated, real = self.opened[number]
        expected = outcome(self.plain.allocate, number, offset, size_bytes)
        assert outcome(self.files.allocate, simulated, offset, size_bytes) == expected
        if expected != "error 28":
            assert outcome(self.real.allocate, real, offset, size_bytes) == expected

    @precondition(lambda self: self.opened)
    @rule(number=numbers, to=numbers, offset=offsets, size_bytes=st.integers(0, 20))
    def copy_range(self, number, to, offset, size_bytes):
        number, to = number % len(self.opened), to % len(self.opened)
        if self.plain.opened[number] is self.plain.opened[to]:
            return
        data = self.plain.opened[number].seen[offset : offset + size_bytes]
        landed = self.plain.write(to, offset, data)
        expected = len(data) if landed == len(data) else "error 28"
        (source, real_source), (target, real_target) = self.opened[number], self.opened[to]
        assert outcome(self.files.copy_range, source, target, offset, size_bytes) == expected
        assert self.real.copy_range(real_source, real_target, offset, landed) == landed

    @precondition(lambda self: self.opened)
    @rule(number=numbers)
    def sync(self, number):
        number %= len(self.opened)
        self.plain.sync(number)
        self.files.sync(self.opened[number][0])

    @rule(path=st.one_of(st.just("/"), directories))
    def sync_directory(self, path):
        assert outcome(self.files.sync_directory, path) == outcome(self.plain.sync_directory, path)

    @rule(source=paths, to=paths)
    def rename(self, source, to):
        self.both("rename", source, to)

    @rule(source=paths, to=paths)
    def link(self, source, to):
        self.both("link", source, to)

    @rule(path=paths)
    def unlink(self, path):
        self.both("unlink", path)

    @rule(path=paths)
    def make_directory(self, path):
        self.both("make_directory", path)

    @rule(path=paths)
    def remove_directory(self, path):
        self.both("remove_directory", path)

    @precondition(lambda self: self.plain.waiting() <= FEW)
    @rule(move=st.sampled_from([None, sync_all, write_all, remove_all]))
    def try_every_state(self, move):
        """Compare all states after a power loss with the oracle's, while the disk goes on."""
        assert self.files.pending == self.plain.pending()
        expected = self.plain.states()
        states = self.files.power_loss_states()
        found = [snapshot(state) for state in itertools.islice(states, 1)]
        if move is not None:
            move(self)
        found += [snapshot(state) for state in states]
        assert len(found) == len(set(found))
        assert set(found) == expected

    @precondition(lambda self: self.plain.waiting() <= FEW)
    @rule(seeds=st.lists(st.integers(0, 1 << 32), min_size=1, max_size=4), copied=st.booleans())
    def lose_power(self, seeds, copied):
        """Each drawn loss is a legal state; continue from the last one."""
        legal = self.plain.states()
        for seed in seeds:
            before = self.files.copied() if copied else copy.deepcopy(self.files)
            after = before.power_loss(seed)
            assert snapshot(after) in ({snapshot(self.files)} if copied else legal)
        self.start_from(after)

    @rule()
    def copy_it(self):
        self.start_from(self.files.copied())

    def start_from(self, files):
        state = snapshot(files)
        self.files = files
        self.plain = oracle.Disk(CAPACITY_BYTES, SECTOR_BYTES, state)
        self.close_real()
        self.root = tempfile.mkdtemp(dir=self.roots)
        for path, content, first in state:
            if content is None:
                os.mkdir(self.root + path)
            elif path != first:
                os.link(self.root + first, self.root + path)
            else:
                with open(self.root + path, "wb") as file:
                    file.write(content)

    @invariant()
    def all_show_the_same(self):
        assert snapshot(self.files) == self.plain.seen() == snapshot_of_real(self.root)
        assert self.files.free_bytes("/") == self.plain.free()
        for (simulated, real), node in zip(self.opened, self.plain.opened, strict=True):
            assert self.files.size(simulated) == self.real.size(real) == len(node.seen)
            assert bytes(self.files.map(simulated, 1 << 20)) == node.seen
            for offset, size_bytes in ((0, 1 << 20), (3, 9), (BLOCK_BYTES - 4, BLOCK_BYTES + 10), (BLOCK_BYTES, 0)):
                expected = node.seen[offset : offset + size_bytes]
                assert self.files.pread(simulated, size_bytes, offset) == expected
                assert self.real.pread(real, size_bytes, offset) == expected


few_paths = st.sampled_from(["/a", "/b", "/d/a", "/e/b"])
steps = st.one_of(
    st.tuples(st.just("write"), st.just(0), offsets, contents),
    st.tuples(st.just("allocate"), st.just(0), offsets, st.sampled_from([1, 100, BLOCK_BYTES])),
    st.tuples(st.just("rename"), few_paths, few_paths),
    st.tuples(st.just("link"), few_paths, few_paths),
    st.tuples(st.just("unlink"), few_paths),
    st.tuples(st.just("open"), few_paths, st.just(READ_WRITE_NEW)),
    st.tuples(st.just("sync_directory"), st.sampled_from(["/", "/d"])),
)


@given(content=st.sampled_from([b"", b"old and durable", LONG]), taken=st.lists(steps, min_size=2, max_size=6))
def test_every_state_of_a_few_steps(content, taken):
    """Every state after a power loss is tried while few changes of names and contents wait."""
    disks = Disks()
    try:
        disks.begin(content)
        for operation, *arguments in taken:
            getattr(disks, operation)(*arguments)
            if disks.plain.waiting() > FEW:
                break
            disks.try_every_state(None)
        if disks.plain.waiting() <= FEW:
            disks.lose_power([1, 2, 3], copied=False)
    finally:
        disks.close_real()
        shutil.rmtree(disks.roots)
