"""Sources in stores that fsspec opens: the memory file system, and faulty ones."""

import errno
import random
import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry, known_implementations

from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.local.version import open_version
from gossipkv.dataset.source import remote as module
from gossipkv.dataset.source import small_objects
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.dataset.source.remote import RemoteFiles, RemoteRoot
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import SourceChanged, SourceError, StorageError
from gossipkv.processes.program import order_line, read_order
from tests.unit.dataset.sources import MEMORY_BYTES, lines

SECRET = "correct-horse"


@pytest.fixture
def memory():
    """Yield the memory file system, empty before and after."""
    system = MemoryFileSystem()
    for _ in ("before", "after"):
        system.store.clear()
        system.pseudo_dirs[:] = [""]
        if _ == "before":
            yield system


def source(url="memory://root", **options):
    return SourceRoot.open(url, RealFiles(), options)


@pytest.fixture
def store():
    """Yield `store(name, **methods)`, which registers a memory file system with other methods as protocol `name`."""
    made = []

    def store(name, **methods):
        made.append(name)
        strip = classmethod(lambda _, path: MemoryFileSystem._strip_protocol(path.rpartition("://")[2]))
        methods = {"protocol": name, "_strip_protocol": strip, **methods}
        fsspec.register_implementation(name, type(name, (MemoryFileSystem,), methods))

    yield store
    for name in made:
        _registry.pop(name, None)


def test_a_source_is_listed_as_a_local_one(memory):
    """Names, hidden files, checksum files and ignored entries are as in a local one; paths are URLs."""
    memory.pipe("/root/db/v1/part-1", b"b\t2\n")
    memory.pipe("/root/db/v1/part-0", b"a\t1\n")
    memory.pipe("/root/db/v1/_SUCCESS", b"")
    memory.pipe("/root/db/v1/.part-0.crc", b"?")
    memory.pipe("/root/db/v1/_temporary/0/part-9", b"x")
    memory.pipe("/root/db/v3/_SUCCESS", b"")
    memory.pipe("/root/README", b"x")
    memory.pipe("/root/db/v1/../part-7", b"x")
    memory.mkdirs("/root/db/v2")
    found = source()
    assert found.databases().names == ("db",)
    assert found.databases().ignored == ("memory://root/README: a database must be a directory",)
    assert found.versions("db").names == ("v1", "v2", "v3")
    version = found.version("db", "v1")
    assert [file.path for file in version.files] == ["memory://root/db/v1/part-0", "memory://root/db/v1/part-1"]
    assert version.files[0].checksums.path == "memory://root/db/v1/.part-0.crc"
    assert version.waiting_for is None
    assert found.version("db", "v2").waiting_for == found.version("db", "v3").waiting_for == "a data file"
    with SourceReader(found._files, version.files[1]) as reader:
        assert list(reader.chunks()) == [b"b\t2\n"]
        assert reader.read_at(1, 2) == b"\t2"


def test_a_store_lists_as_the_same_version_as_a_disk(memory, tmp_path):
    """The digest depends on names and sizes only."""
    for root, write in (("/root", memory.pipe), (str(tmp_path), None)):
        for name in ("part-0", "part-1"):
            if write is None:
                (tmp_path / "db" / "v").mkdir(parents=True, exist_ok=True)
                (tmp_path / "db" / "v" / name).write_bytes(name.encode())
            else:
                write(f"{root}/db/v/{name}", name.encode())
    assert source().version("db", "v").digest == SourceRoot(tmp_path, RealFiles()).version("db", "v").digest


def test_a_build_reads_from_a_store(memory, tmp_path):
    """The job alone says where to read; no other process sees this memory."""
    memory.pipe("/root/db/v1/part-0", lines(a=1, b=2))
    memory.pipe("/root/db/v1/part-1", lines(b=3))
    found = source()
    (tmp_path / "out").mkdir()
    job = BuildJob.of(found.version("db", "v1"), str(tmp_path / "out"), remote=found.remote)
    assert read_order(order_line(job), BuildJob) == job
    manifest = perform(job, RealFiles(), BuildResources(MEMORY_BYTES))
    assert (manifest.records, manifest.duplicates) == (2, 1)
    version = open_version(RealFiles(), tmp_path / "out", "db", "v1")
    try:
        assert sorted(record for file in version.files for record in file.scan()) == [(b"a", b"1"), (b"b", b"3")]
    finally:
        version.close()


def test_what_is_no_directory_says_so(memory):
    """A file in the place of a version and a missing name each have an error."""
    memory.pipe("/root/db/v1", b"x")
    with pytest.raises(SourceError, match=r"memory://root/db/v1: the directory cannot be read: .*(file|directory)"):
        source().version("db", "v1")
    with pytest.raises(
        SourceError, match="memory://root/none: the directory cannot be read: no such file or directory"
    ):
        source().versions("none")


def test_an_object_that_was_written_again_is_a_change(memory):
    """The object has the same size; a new listing has another fingerprint."""
    memory.pipe("/root/db/v1/part-0", b"a\t1\n")
    found = source()
    before = found.version("db", "v1")
    reader = SourceReader(found._files, before.files[0])
    with reader:
        assert reader.read_at(0, 4) == b"a\t1\n"
    memory.pipe("/root/db/v1/part-0", b"a\t2\n")
    with pytest.raises(SourceChanged):
        reader.__enter__()
    after = found.version("db", "v1")
    assert after.digest == before.digest
    assert after.fingerprint != before.fingerprint


def test_a_new_version_is_seen_at_once(memory, store):
    """This holds even if the store's package caches directories."""
    kept = {}

    def ls(self, path, **options):
        if path not in kept:
            kept[path] = super(type(self), self).ls(path, detail=True)
        return kept[path]

    store("forgetful", ls=ls, invalidate_cache=lambda self, path=None: kept.clear())
    memory.pipe("/root/db/v1/part-0", b"a\t1\n")
    found = source("forgetful://root")
    assert found.versions("db").names == ("v1",)
    memory.pipe("/root/db/v2/part-0", b"a\t1\n")
    assert found.versions("db").names == ("v1", "v2")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s4://bucket", "fsspec does not support s4://; the most similar protocol is s3://"),
        ("lacking://x", "needs a package that is not installed; run `pip install 'no_such_package_of_a_store'`"),
    ],
)
def test_a_store_that_cannot_be_opened_says_what_to_install(url, said, monkeypatch):
    """The first listing raises a single error."""
    monkeypatch.setitem(
        known_implementations,
        "lacking", {"class": "no_such_package_of_a_store.core.Store", "err": "get it"},
    )  # fmt: skip
    with pytest.raises(SourceError, match=r"cannot be read") as caught:
        source(url).databases()
    assert said in str(caught.value)


@pytest.mark.parametrize(("protocol", "extra"), [("s3", "s3"), ("gs", "gcs"), ("az", "azure")])
def test_an_extra_of_ours_is_named(monkeypatch, protocol, extra):
    """Our extra installs the package for the store."""
    monkeypatch.delitem(_registry, protocol, raising=False)
    monkeypatch.setitem(known_implementations, protocol, {"class": "no_such_package_of_a_store.Store", "err": "get it"})
    with pytest.raises(SourceError, match=rf"run `pip install 'gossipkv\[{extra}\]'`"):
        source(f"{protocol}://bucket").databases()


class OddError(Exception):
    """An error without a known base."""


@pytest.mark.parametrize(
    "error",
    [
        OddError(f"login {SECRET} refused"), OSError(errno.EACCES, f"login {SECRET} refused"),
        PermissionError(f"login {SECRET} refused"), ValueError(f"odd://joe:{SECRET}@host/x refused"),
        TimeoutError(), OddError(),
    ],
    ids=repr,
)  # fmt: skip
def test_errors_of_a_store_are_one_kind_and_tell_no_secret(error, store):
    """No error of a store's package shows the password, in its message or its chain."""

    def ls(self, path, **options):
        raise error

    def init(self, *given, password, **options):
        assert password == SECRET
        MemoryFileSystem.__init__(self, *given, **options)

    store("odd", ls=ls, __init__=init)
    found = source(f"odd://joe:{SECRET}@host/root", password=SECRET)
    with pytest.raises(SourceError) as caught:
        found.databases()
    shown = caught.value
    assert str(shown).startswith("odd://***@host/root: the directory cannot be read: ")
    said = str(shown).removeprefix("odd://***@host/root: the directory cannot be read: ")
    assert said in {"login *** refused", "odd://***@host/x refused", "TimeoutError", "OddError"}
    assert "refused" in said or not str(error)
    while shown is not None:
        assert SECRET not in f"{shown} {shown.args} {getattr(shown, 'details', '')}"
        assert SECRET not in repr(found.remote)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)


def test_a_session_that_broke_is_begun_again(store, memory):
    """An error that is no answer about the file causes a new connection at the next listing."""
    made = []

    def ls(self, path, **options):
        if self is made[0]:
            raise OddError("session expired")
        return super(type(self), self).ls(path, detail=True)

    def init(self, *given, **options):
        made.append(self)
        MemoryFileSystem.__init__(self, *given, **options)

    store("sessions", ls=ls, __init__=init)
    memory.pipe("/root/db/v1/part-0", b"a\t1\n")
    found = source("sessions://root")
    with pytest.raises(SourceError, match="session expired"):
        found.databases()
    assert found.databases().names == ("db",)
    assert found.databases().names == ("db",)
    assert len(made) == 2


def test_reading_that_is_refused_names_the_file(store, memory):
    """The error is not a change."""

    class Broken:
        seek = close = lambda self, *_: None

        def read(self, size):
            raise OddError("reset by peer")

    store("breaks", open=lambda self, path, mode, **options: Broken())
    memory.pipe("/root/db/v1/part-0", b"a\t1\n")
    found = source("breaks://root")
    version = found.version("db", "v1")
    with (
        pytest.raises(StorageError, match="breaks://root/db/v1/part-0: the file cannot be read: reset by peer"),
        SourceReader(found._files, version.files[0]) as reader,
    ):
        reader.read_at(0, 1)


def test_too_many_entries_are_refused(monkeypatch, memory):
    monkeypatch.setattr(module, "MAX_ENTRIES", 3)
    for number in range(4):
        memory.pipe(f"/root/db/v1/part-{number}", b"")
    with pytest.raises(
        SourceError, match=r"memory://root/db/v1: the directory cannot be read: it has more than .* entries"
    ):
        source().version("db", "v1")


@pytest.mark.parametrize(
    ("info", "kind", "size_bytes", "modified_ns", "tag"),
    [
        ({"type": "file", "size": 3, "ETag": '"abc"', "LastModified": datetime(2024, 1, 1, 0, 0, 1, 500, tzinfo=UTC)},
         "file", 3, 1_704_067_201_000_000_000, "abc"),
        ({"type": "file", "size": 3, "mtime": 1.5}, "file", 3, 1_500_000_000, ""),
        ({"type": "file", "size": 0, "updated": "2024-01-01T00:00:01.000Z", "generation": 7},
         "file", 0, 1_704_067_201_000_000_000, "7"),
        ({"type": "file", "size": 3, "created": datetime(2024, 1, 1)},  # noqa: DTZ001  # Some stores tell no zone.
         "file", 3, 1_704_067_200_000_000_000, ""),
        ({"type": "file", "size": 3, "mtime": "yesterday"}, "file", 3, 0, ""),
        ({"type": "directory", "size": None}, "directory", 0, 0, ""),
        ({"type": "link", "size": 1}, "other", 1, 0, ""),
    ],
)  # fmt: skip
def test_what_stores_tell_of_a_file(info, kind, size_bytes, modified_ns, tag):
    """Each store has its own fields; times count by the second where there is a tag."""
    entry = module._entry("/root/db/v1/x", {"name": "/root/db/v1/x", **info})
    assert (entry.name, entry.kind, entry.size_bytes, entry.modified_ns, entry.tag) == (
        "x", kind, size_bytes, modified_ns, tag,
    )  # fmt: skip


def test_a_store_that_tells_no_size_is_refused():
    """Without a size a complete file cannot be told from a partial one."""
    with pytest.raises(OSError, match="does not report the size of the file"):
        module._entry("/x", {"name": "/x", "type": "file", "size": None})


def test_reading_goes_on_where_the_store_stops_short(store, memory):
    """A read may return less than was requested."""
    data = random.Random(1).randbytes(1_000)

    class Dribble:
        at = 0

        def seek(self, offset):
            self.at = offset

        def read(self, size):
            part = data[self.at : self.at + min(size, 7)]
            self.at += len(part)
            return part

        def close(self):
            """Nothing to do."""

    store("dribbles", open=lambda self, path, mode, **options: Dribble())
    memory.pipe("/root/x", data)
    files = RemoteFiles(RemoteRoot("dribbles://root", {}))
    descriptor = files.open("dribbles://root/x")
    assert files.pread(descriptor, 900, 50) == data[50:950]
    assert files.pread(descriptor, 900, 950) == data[950:]
    files.close(descriptor)


def test_the_root_alone_decides_what_is_read_with(tmp_path):
    """A path is local, whatever the options are."""
    found = SourceRoot.open(str(tmp_path), RealFiles(), {"key": "x"})
    assert found.remote is None
    assert found.root == str(Path(tmp_path))


# -- small objects -----------------------------------------------------------------------------------------------------


def counting(counts):
    """Return methods that count the requests of a store."""

    def counted(name):
        def method(self, *arguments, **options):
            counts[name] += 1
            return getattr(MemoryFileSystem, name)(self, *arguments, **options)

        return method

    return {name: counted(name) for name in ("cat_file", "info", "open", "ls")}


@pytest.mark.parametrize("kept_bytes", [1 << 20, 20, 0])
def test_small_objects_are_read_whole_and_once(memory, store, tmp_path, monkeypatch, kept_bytes):
    """A build looks at each file three times; where bytes do not fit, they are read again."""
    monkeypatch.setattr(small_objects, "KEPT_BYTES", kept_bytes)
    counts = Counter()
    store("counting", **counting(counts))
    for number in range(30):
        memory.pipe(f"/root/db/v1/part-{number:02}", lines(**{f"k{number}": number}))
    memory.pipe("/root/db/v1/part-99", b"")
    (tmp_path / "out").mkdir()
    found = source("counting://root")
    job = BuildJob.of(found.version("db", "v1"), str(tmp_path / "out"), partitions=3, remote=found.remote)
    counts.clear()
    assert perform(job, RealFiles(), BuildResources(MEMORY_BYTES)).records == 30
    if kept_bytes == 1 << 20:
        assert counts == {"cat_file": 30, "info": 31}
    else:
        assert counts["open"] == 0


def test_a_small_object_that_changed_is_an_error(memory):
    """Its bytes and its state are asked for together, and compared with what was listed."""
    memory.pipe("/root/db/v1/part-0", b"a\t1\n")
    found = source()
    version = found.version("db", "v1")
    for data in (b"a\t2\n", b"a\t1\nb\t2\n", b""):
        memory.pipe("/root/db/v1/part-0", data)
        found._files.announce(version.files)
        with pytest.raises(SourceChanged), SourceReader(found._files, version.files[0]):
            pass
    memory.rm("/root/db/v1/part-0")
    found._files.announce(version.files)
    with pytest.raises(SourceChanged, match="it does not exist"), SourceReader(found._files, version.files[0]):
        pass


def test_many_small_objects_are_on_their_way_at_once(memory, store):
    """The store answers only when as many requests as may be in flight have come."""
    gate = threading.Barrier(small_objects.AHEAD, timeout=20)

    def cat_file(self, *arguments, **options):
        gate.wait()
        return MemoryFileSystem.cat_file(self, *arguments, **options)

    store("slow", cat_file=cat_file)
    for number in range(2 * small_objects.AHEAD):
        memory.pipe(f"/root/db/v1/part-{number:02}", b"%d" % number)
    found = source("slow://root")
    version = found.version("db", "v1")
    found._files.announce(version.files)
    for number, file in enumerate(version.files):
        with SourceReader(found._files, file) as reader:
            assert b"".join(reader.chunks()) == b"%d" % number


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EBUSY, "busy"), RuntimeError("SlowDown: Please reduce your request rate."), OSError("HTTP 503")],
)
def test_a_busy_store_is_asked_again(memory, store, monkeypatch, error):
    """It is asked a few times, after pauses that double, and then its words are the error."""
    pauses = []
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=pauses.append))
    left = [5]

    def ls(self, *arguments, **options):
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return MemoryFileSystem.ls(self, *arguments, **options)

    store("busy", ls=ls)
    memory.pipe("/root/db/v1/part-0", b"a\t1\n")
    assert source("busy://root").versions("db").names == ("v1",)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2]
    left[0] = 6
    with pytest.raises(SourceError, match="cannot be read: "):
        source("busy://root").versions("db")


@pytest.mark.parametrize(
    "words",
    [
        "An error occurred (ExpiredToken)", "The provided token has expired.", "Invalid Credentials, 401",
        "invalid_grant: Bad Request", "AADSTS7000222: The provided client secret keys for app 'x' are expired.",
        "Server failed. " * 40 + "Signature not valid in the specified time frame: Start [x] - Expiry [y]",
    ],
)  # fmt: skip
def test_expired_credentials_are_said(store, words):
    def ls(self, *_arguments, **_options):
        raise PermissionError(words)

    store("expired", ls=ls)
    with pytest.raises(SourceError, match="the credentials of the store have expired; renew them"):
        source("expired://root").versions("db")
