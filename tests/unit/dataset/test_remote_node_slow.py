"""Datasets from S3, with moto as the server: real child processes, real HTTP, objects that change."""

import contextlib
import json
import logging
import socket
import threading
from collections import Counter
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from moto.server import ThreadedMotoServer
from pyiceberg.catalog import load_catalog
from s3fs import S3FileSystem

from gossipkv.dataset import library as library_module
from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.source import remote
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.dataset.source.object_stores import first_entries
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import SourceError
from gossipkv.settings.databases import DatabaseSettings
from tests.unit.dataset.snapshots.delta_tables import actions, commit, evolve, vector_in_file
from tests.unit.dataset.sources import lines
from tests.unit.dataset.world import active, get, lift_the_throttle, state, until
from tests.world.logs import capture_logs

SECRET = "correct-horse-battery-staple"
SLOW_OBJECTS, SLOWLY = 8, 16_000  # Each takes a second, less would cost more requests.
MEMORY = 512 << 20  # A child that speaks S3 holds a hundred mebibytes before it reads anything.


@pytest.fixture(scope="module")
def server():
    """Yield the URL of moto's server in this process."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


class Bucket:
    def __init__(self, url, name):
        self.name = name
        self.url = f"s3://{name}/root"
        self.options = {
            "key": "AKIDEXAMPLE", "secret": SECRET, "client_kwargs": {"region_name": "us-east-1"}, "endpoint_url": url,
        }  # fmt: skip
        self._client = boto3.client(
            "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y"
        )
        self._client.create_bucket(Bucket=name)

    def put(self, key, data):
        self._client.put_object(Bucket=self.name, Key=f"root/{key}", Body=data)

    def vanish(self):
        while found := self._client.list_objects_v2(Bucket=self.name).get("Contents"):
            for item in found:
                self._client.delete_object(Bucket=self.name, Key=item["Key"])
        self._client.delete_bucket(Bucket=self.name)

    def pages(self, prefix):
        """Return the number of pages that listing a prefix takes."""
        return len([*self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=f"root/{prefix}")])

    def source(self, **settings):
        return SourceRoot.open(self.url, RealFiles(), self.options, **settings)

    def settings(self, **others):
        return {"source": self.url, "storage_options": self.options, "build_memory": MEMORY} | others

    def close(self):
        self._client.close()


@pytest.fixture
def bucket(server, request):
    made = Bucket(server, f"b{abs(hash(request.node.name))}")
    yield made
    made.close()


def test_discovery(bucket):
    """Prefixes are directories; directory markers, hidden names and nested names are not data."""
    for key in ("db/v1/part-0", "db/v1/_SUCCESS", "db/v1/.part-0.crc", "db/v1/_temporary/0/part-9", "db/v2/", "README"):
        bucket.put(key, b"" if key.endswith(("/", "_SUCCESS")) else b"x")
    source = bucket.source(require_success_file=True)
    assert source.databases().names == ("db",)
    assert source.databases().ignored == (f"{bucket.url}/README: a database must be a directory",)
    assert source.versions("db").names == ("v1", "v2")
    version = source.version("db", "v1")
    assert [(file.name, file.size_bytes, bool(file.tag)) for file in version.files] == [("part-0", 1, True)]
    assert version.files[0].checksums.path == f"{bucket.url}/db/v1/.part-0.crc"
    assert version.waiting_for is None
    assert source.version("db", "v2").waiting_for == "a data file"
    bucket.put("db/v1/part-1/x", b"")
    with pytest.raises(SourceError, match="part-1: a directory is among the data files"):
        source.version("db", "v1")


async def test_tables_in_a_bucket(bucket, world):
    """The log and the files of deleted rows are read by the same options as the data."""
    delta, iceberg = world.root / "delta", world.root / "warehouse"
    write_deltalake(delta, pa.table({"key": ["a", "b"], "value": ["1", "2"]}))
    evolve(delta, {"value": "v"}, ["columnMapping", "deletionVectors"])
    (added,) = [action["add"] for action in actions(delta, 0) if "add" in action]
    commit(delta, {"remove": {"path": added["path"]}}, {"add": added | {"deletionVector": vector_in_file(delta, 0)}})
    iceberg.mkdir()
    lake = load_catalog("lake", type="sql", uri=f"sqlite:///{world.root}/c.db", warehouse=str(iceberg))
    lake.create_namespace("web")
    table = lake.create_table("web.users", pa.schema([("key", pa.string()), ("value", pa.string())]))
    table.append(pa.table({"key": ["a", "c"], "value": ["1", "3"]}))
    lake.close()
    (newest,) = (iceberg / "web" / "users" / "metadata").glob("00001-*")
    newest.rename(newest.with_name("v1.metadata.json"))
    for root, name in ((delta, "db"), (iceberg / "web" / "users", "ice")):
        for path in root.rglob("*"):
            if path.is_file():
                bucket.put(f"{name}/{path.relative_to(root)}", path.read_bytes())
    databases = {
        "db": DatabaseSettings(format="delta", value="v"),
        "ice": DatabaseSettings(format="iceberg"),
        "own": DatabaseSettings(format="delta", value="v", table=f"{bucket.url}/db", storage_options=bucket.options),
    }
    async with world.node(**bucket.settings(databases=databases)) as library:
        for database, expected in (
            ("db", [None, b"2"]),
            ("ice", [b"1", None]),
            ("own", [None, b"2"]),
        ):
            await until(lambda database=database: library.active(database) is not None)
            assert [get(library, key, database) for key in (b"a", b"b")] == expected


def test_more_objects_than_a_page_holds(bucket, monkeypatch):
    """S3 lists a thousand at a time; here it is ten."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    names = [f"part-{number:05d}" for number in range(21)]
    for name in names:
        bucket.put(f"db/v1/{name}", b"")
    assert bucket.pages("db/v1") == 3
    assert [file.name for file in bucket.source().version("db", "v1").files] == names


def test_a_listing_ends_early(bucket, monkeypatch):
    """With more entries than any version may have, no further page is requested."""
    for number in range(7):
        bucket.put(f"db/v1/part-{number}", b"")
    source = bucket.source()
    assert len(source.version("db", "v1").files) == 7
    monkeypatch.setattr(remote, "MAX_ENTRIES", 3)
    with pytest.raises(SourceError, match="db/v1: the directory cannot be read: it has more than"):
        source.version("db", "v1")
    assert len(first_entries(source._files._opened[0], f"{bucket.name}/root/db/v1", most=3)) == 4


def test_a_small_object_takes_one_request(bucket, tmp_path, monkeypatch):
    """The answer with the bytes has the state as well, and a build asks for each object once."""
    for number in range(40):
        bucket.put(f"db/v1/part-{number:02}", lines(**{f"k{number}": number}))
    counts = Counter()
    call = vars(S3FileSystem)["_call_s3"]

    async def counted(self, method, *arguments, **options):
        counts[method] += 1
        return await call(self, method, *arguments, **options)

    monkeypatch.setattr(S3FileSystem, "_call_s3", counted)
    found = SourceRoot.open(bucket.url, RealFiles(), bucket.options)
    job = BuildJob.of(found.version("db", "v1"), str(tmp_path), remote=found.remote)
    assert perform(job, RealFiles(), BuildResources(MEMORY)).records == 40
    assert counts == {"get_object": 40, "list_objects_v2": 1}


async def test_versions_are_built_and_served(bucket, world):
    """The child reads the store itself; a new version is seen at the next listing."""
    bucket.put("db/v1/part-0", lines(a=1, b=2))
    bucket.put("db/v1/part-1", lines(a=3))
    async with world.node(**bucket.settings()) as library:
        await active(library, "v1")
        assert (get(library, b"a"), get(library, b"b"), get(library, b"c")) == (b"3", b"2", None)
        bucket.put("db/v2/part-0", lines(a=4))
        assert await library.rescan() == {"db": ["v1", "v2"]}
        await active(library, "v2")
        assert get(library, b"a") == b"4"


async def test_an_object_written_again_during_the_build(bucket, world):
    """The new object has the same size: the build begins anew, and one state is served."""
    before, after = (b"".join(b"%06d\t%s\n" % (n, text * 90) for n in range(100)) for text in (b"x", b"y"))
    put_slow_objects(bucket, "db/v1")
    bucket.put("db/v1/part-8", before)
    with capture_logs() as logs:
        async with world.node(**bucket.settings(throttle_loads=SLOWLY)) as library:
            await until(lambda: read_so_far(library) > 0)
            bucket.put("db/v1/part-8", after)
            lift_the_throttle(library)
            await until(lambda: any(line["event"] == "source_changed" for line in logs))
            await active(library, "v1")
            assert get(library, b"000000") == get(library, b"000099") == b"y" * 90


async def test_a_version_that_is_half_there(bucket, world):
    """A file arrives during the build; in the end all are served."""
    put_slow_objects(bucket, "db/v1")
    async with world.node(**bucket.settings(throttle_loads=SLOWLY)) as library:
        await until(lambda: read_so_far(library) > 0)
        bucket.put("db/v1/part-late", lines(late="yes"))
        lift_the_throttle(library)
        await active(library, "v1")
        assert library.active("db").partitions == SLOW_OBJECTS + 1
        assert get(library, b"late") == b"yes"


def put_slow_objects(bucket, place):
    """Put a version that takes long with the throttle."""
    for number in range(SLOW_OBJECTS):
        bucket.put(f"{place}/part-{number}", b"a\t1\n" * 4000)


def read_so_far(library):
    """Return the bytes that the build of v1 has read."""
    version = library.status().get("db", {"versions": {}})["versions"].get("v1", {})
    return version.get("progress", {"read_bytes": 0})["read_bytes"]


async def test_a_bucket_that_vanishes_goes_on_being_served(bucket, world):
    """The loss is reported, and a restart serves the version as well."""
    bucket.put("db/v1/part-0", lines(a=1))
    async with world.node(**bucket.settings()) as library:
        await active(library, "v1")
        bucket.vanish()
        await library.rescan()
        assert "does not exist" in library.trouble()
        assert get(library, b"a") == b"1"
        assert state(library, "v1") == "ACTIVE"
    async with world.node(**bucket.settings()) as library:
        assert get(library, b"a") == b"1"


@pytest.fixture
def silent():
    """Yield the URL of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = []

        def take():
            while True:
                try:
                    taken.append(listener.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=take)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in taken:
            connection.close()


async def test_a_store_that_hangs_delays_no_other_database(bucket, silent, world, monkeypatch):
    """One database's own endpoint is silent; another is discovered, built and switched meanwhile."""
    monkeypatch.setattr(library_module, "FIRST_SCAN_S", 0.5)
    bucket.put("quick/v1/part-0", lines(a=1))
    slow = DatabaseSettings(storage_options=bucket.options | {"endpoint_url": silent})
    async with world.node(**bucket.settings(databases={"slow": slow}, refresh_period=200)) as library:
        await active(library, "v1", "quick")
        bucket.put("quick/v2/part-0", lines(a=2))
        await active(library, "v2", "quick")
        assert library._databases["slow"].looking
        assert library.status("slow")["slow"]["versions"] == {}


async def test_a_root_that_cannot_be_listed_hides_no_named_database(bucket, world):
    """The database's own options lead to it."""
    bucket.put("db/v1/part-0", lines(a=1))
    own = DatabaseSettings(storage_options=bucket.options)
    wrong = bucket.options | {"endpoint_url": "http://127.0.0.1:1", "config_kwargs": {"retries": {"max_attempts": 1}}}
    async with world.node(**bucket.settings(storage_options=wrong, databases={"db": own})) as library:
        await active(library, "v1")
        assert "Could not connect" in library.trouble()


async def test_no_secret_is_seen(bucket, world):
    """Status, logs, the child's arguments and environment, and the data directory are free of secrets."""
    put_slow_objects(bucket, "db/v1")
    bucket.put("db/v2/part-0", b"no tab\n")
    bucket.put("not a name/x", b"")
    with capture_logs() as logs:
        async with world.node(**bucket.settings(throttle_loads=SLOWLY)) as library:
            await until(lambda: read_so_far(library) > 0)
            seen = what_children_show()
            assert seen
            told = json.dumps(library.status())
            assert "no TAB" in told
    for text in (*map(str, seen), told, str(logs), repr(library._settings), repr(bucket.settings().get("databases"))):
        assert SECRET not in text
    for path in (world.root / "data").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def what_children_show():
    """Return the arguments and environments of building processes."""
    shown = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments = (path / "cmdline").read_bytes()
            if b"gossipkv.dataset.build.build_child" in arguments:
                shown.append(arguments + (path / "environ").read_bytes())
    return shown
