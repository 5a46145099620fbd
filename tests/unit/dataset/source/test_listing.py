"""The source is listed with all due checks."""

import json
import os
import socket
from dataclasses import asdict, replace

import pytest

from gossipkv.dataset.source.files import SourceFile, partition_columns
from gossipkv.dataset.source.listing import MAX_FILES, MAX_IGNORED, Listing, SourceRoot, SourceVersion
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import FileEntry
from gossipkv.errors import SourceError
from gossipkv.settings.databases import is_name
from gossipkv.storage.typed import typed

FILES = RealFiles()


def put(path, data=b"a\tb\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def read(file):
    with SourceReader(FILES, file) as reader:
        return b"".join(reader.chunks())


@pytest.mark.parametrize(
    ("name", "fine"),
    [
        ("a", True), ("A-z_09", True), ("-", True), ("a" * 200, True), ("a" * 201, False), ("", False),
        ("a.b", False), ("..", False), ("a b", False), ("a/b", False), ("ä", False), ("a\n", False),
    ],
)  # fmt: skip
def test_names(name, fine):
    assert is_name(name) is fine


def test_databases_and_versions_are_directories_with_names(tmp_path):
    """Names sort as strings; other entries are ignored, and reported unless hidden."""
    for name in ("v2", "v10", "v1"):
        put(tmp_path / "db" / name / "part-0")
    for hidden in ("_temporary", ".staging"):
        put(tmp_path / "db" / hidden / "part-0")
        put(tmp_path / hidden / "v1" / "part-0")
    put(tmp_path / "not a name" / "v1" / "part-0")
    put(tmp_path / "README")
    put(tmp_path / "db" / "v3.tmp" / "part-0")
    source = SourceRoot(tmp_path, FILES)
    assert source.databases().names == ("db",)
    ignored = source.databases().ignored
    assert [os.path.basename(line.split(":")[0]) for line in ignored] == ["README", "not a name"]
    assert source.versions("db").names == ("v1", "v10", "v2")
    assert "v3.tmp" in source.versions("db").ignored[0]


@pytest.mark.parametrize(
    ("names", "kind"),
    [(["_delta_log"], "a Delta"), ([".hoodie"], "a Hudi"), (["metadata", "data"], "an Iceberg")],
)
def test_tables_are_refused_by_name(tmp_path, names, kind):
    """Their files hold deleted rows as well, so neither a version nor a database may be one."""
    put(tmp_path / "db" / "v1" / "part-0.parquet")
    for name in names:
        put(tmp_path / "db" / "v1" / name / "0.json")
    source = SourceRoot(tmp_path, FILES)
    with pytest.raises(SourceError, match=f"v1: this is {kind} table") as refused:
        source.version("db", "v1")
    setting = f'format = "{kind.split()[1].lower()}" and table = "{tmp_path}/db/v1"'
    assert (setting in refused.value.message) == (kind != "a Hudi")
    with pytest.raises(SourceError, match=f"v1: this is {kind} table"):
        SourceRoot(tmp_path / "db", FILES).versions("v1")
    put(tmp_path / "db" / "v2" / "metadata")
    put(tmp_path / "db" / "v2" / "data")
    assert len(source.version("db", "v2").files) == 2


def test_directories_of_partitions_are_part_of_a_version(tmp_path):
    """Their names are columns; others are refused, and hidden ones are no data."""
    for name in ("part-9", "c=DE/n=1/part-0", "c=DE/n=__HIVE_DEFAULT_PARTITION__/x", "c=a%2Fb/part-0", "c=DE/_SUCCESS"):
        put(tmp_path / "db" / "v1" / name)
    put(tmp_path / "db" / "v1" / "_c=XX" / "part-0")
    source = SourceRoot(tmp_path, FILES)
    files = source.version("db", "v1").files
    assert [(file.name, partition_columns(file.name)) for file in files] == [
        ("c=DE/n=1/part-0", (("c", "DE"), ("n", "1"))),
        ("c=DE/n=__HIVE_DEFAULT_PARTITION__/x", (("c", "DE"), ("n", None))),
        ("c=a%2Fb/part-0", (("c", "a/b"),)),
        ("part-9", ()),
    ]
    assert all(read(file) for file in files)
    put(tmp_path / "db" / "v2" / "/".join(["a=1"] * 18) / "part-0")
    with pytest.raises(SourceError, match="more than 16 directories deep"):
        source.version("db", "v2")
    put(tmp_path / "db" / "v3" / "c=DE" / "inner" / "part-0")
    with pytest.raises(SourceError, match="a directory is among the data files"):
        source.version("db", "v3")


def test_markers_of_emr_and_databricks_are_not_data(tmp_path):
    for name in ("part-0", "part-1_$folder$", "_started_7", "_committed_7"):
        put(tmp_path / "db" / "v1" / name)
    put(tmp_path / "db" / "v1_$folder$")
    source = SourceRoot(tmp_path, FILES)
    assert source.versions("db") == Listing(("v1",), ())
    assert [file.name for file in source.version("db", "v1").files] == ["part-0"]


def test_a_version_is_its_data_files_sorted_as_bytes(tmp_path):
    for name in ("part-2", "part-10", "_SUCCESS", ".part-2.crc", "_metadata", "Z", "é"):
        put(tmp_path / "db" / "v" / name, b"a\t" + name.encode())
    version = SourceRoot(tmp_path, FILES).version("db", "v")
    assert [file.name for file in version.files] == ["Z", "part-10", "part-2", "é"]
    assert version.waiting_for is None
    assert version.size_bytes == 3 + 9 + 8 + 4
    assert version.files[1].size_bytes == 9
    assert read(version.files[1]) == b"a\tpart-10"


def test_a_version_waits_for_data_and_for_success(tmp_path):
    """An empty version is not complete, nor is one without a required `_SUCCESS`."""
    (tmp_path / "db" / "v").mkdir(parents=True)
    easy, strict = SourceRoot(tmp_path, FILES), SourceRoot(tmp_path, FILES, require_success_file=True)
    assert easy.version("db", "v").waiting_for == "a data file"
    put(tmp_path / "db" / "v" / "part-0")
    assert easy.version("db", "v").waiting_for is None
    before = strict.version("db", "v")
    assert before.waiting_for == "a file _SUCCESS"
    put(tmp_path / "db" / "v" / "_SUCCESS", b"")
    after = strict.version("db", "v")
    assert after.waiting_for is None
    assert after.digest == before.digest
    assert after.fingerprint != before.fingerprint


def test_the_digest_is_of_names_and_sizes_the_fingerprint_of_times_too(tmp_path):
    """A copy is the same version; a touched file is another listing."""
    for root in ("one", "two"):
        put(tmp_path / root / "db" / "v" / "a", b"x\t1")
    os.utime(tmp_path / "two" / "db" / "v" / "a", ns=(1, 1))
    one, two = (SourceRoot(tmp_path / root, FILES).version("db", "v") for root in ("one", "two"))
    assert one.digest == two.digest
    assert one.fingerprint != two.fingerprint
    put(tmp_path / "two" / "db" / "v" / "a", b"x\t12")
    assert SourceRoot(tmp_path / "two", FILES).version("db", "v").digest != one.digest


def test_a_tag_takes_part_in_the_fingerprint_and_not_in_the_digest():
    """A tag counts like a time, that of a checksum file too."""
    file = SourceFile("a", "/a", 1, 1, "tag", SourceFile(".a.crc", "/.a.crc", 12, 1, "tag"))
    assert file.checksums is not None
    one = SourceVersion("db", "v", (file,))
    for other in (replace(file, tag="t"), replace(file, checksums=replace(file.checksums, tag="t"))):
        two = SourceVersion("db", "v", (other,))
        assert two.digest == one.digest
        assert two.fingerprint != one.fingerprint
    assert typed(SourceFile, json.loads(json.dumps(asdict(file)))) == file
    with pytest.raises(ValueError, match="`path` is missing"):
        typed(SourceFile, {"name": "a"})


def test_links_are_followed_below_the_root_only(tmp_path):
    """A link out of the source is refused, whatever its target."""
    root = tmp_path / "root"
    put(root / "db" / "v1" / "part-0", b"inside\t1\n")
    put(tmp_path / "outside" / "part-0", b"outside\t1\n")
    (root / "db" / "v2").symlink_to(root / "db" / "v1")
    (root / "db" / "v3").symlink_to(tmp_path / "outside")
    (root / "db" / "v4").symlink_to(tmp_path / "nowhere")
    (root / "db" / "v5").symlink_to(root / "db" / "v5")
    put(tmp_path / "root-beside" / "part-0", b"beside\t1\n")
    (root / "db" / "v6").symlink_to(tmp_path / "root-beside")
    (root / "other").symlink_to(tmp_path)
    source = SourceRoot(root, FILES)
    assert source.databases().names == ("db",)
    assert "leads out of the source" in source.databases().ignored[0]
    assert source.versions("db").names == ("v1", "v2")
    assert [line.split(": ")[1] for line in source.versions("db").ignored] == [
        f"the link leads out of the source, to {tmp_path / 'outside'}",
        "the target of the link cannot be read",
        "the target of the link cannot be read",
        f"the link leads out of the source, to {tmp_path / 'root-beside'}",
    ]
    assert read(source.version("db", "v2").files[0]) == b"inside\t1\n"


def test_a_root_that_is_a_link_is_a_root(tmp_path):
    """The operator named the link."""
    put(tmp_path / "real" / "db" / "v" / "a")
    (tmp_path / "real" / "db" / "v" / "b").symlink_to("a")
    (tmp_path / "link").symlink_to("real")
    assert [file.name for file in SourceRoot(tmp_path / "link", FILES).version("db", "v").files] == ["a", "b"]


@pytest.mark.parametrize("what", ["fifo", "socket", "directory", "out", "nowhere"])
def test_what_cannot_be_data_is_an_error_of_the_version(tmp_path, what, monkeypatch):
    """Skipping the entry silently would lose records."""
    version = tmp_path / "root" / "db" / "v"
    put(version / "part-0")
    bad = version / "part-1"
    if what == "fifo":
        os.mkfifo(bad)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            monkeypatch.chdir(version)  # A socket's path has 108 bytes at most.
            listener.bind("part-1")
    elif what == "directory":
        bad.mkdir()
    else:
        put(tmp_path / "out")
        bad.symlink_to(tmp_path / what)
    with pytest.raises(SourceError, match="part-1") as caught:
        SourceRoot(tmp_path / "root", FILES).version("db", "v")
    assert caught.value.details["file"] == str(bad)


def test_a_source_that_is_gone_is_an_error_that_names_it(tmp_path):
    """The root, a database or a version may be gone."""
    source = SourceRoot(tmp_path / "gone", FILES)
    for look in (source.databases, lambda: source.versions("db"), lambda: source.version("db", "v")):
        with pytest.raises(SourceError, match=r"gone.*No such file"):
            look()


def test_too_many_files_are_refused():
    """The refusal comes before the files become as many mappings."""

    class Many(RealFiles):
        def list_directory(self, path):
            return [FileEntry(f"part-{number:06d}", "file", 1, 1) for number in range(MAX_FILES + 1)]

    with pytest.raises(SourceError, match="more than 16,384 data files"):
        SourceRoot("/x", Many()).version("db", "v")


def test_what_is_ignored_is_told_within_limits(tmp_path):
    """Only some of many odd names are reported."""
    for number in range(MAX_IGNORED + 5):
        (tmp_path / f"odd.{number}").touch()
    assert len(SourceRoot(tmp_path, FILES).databases().ignored) == MAX_IGNORED


def test_success_alone_and_nested_leftovers_are_no_data(tmp_path):
    """A version with `_SUCCESS` and `_temporary` waits for a data file, also when `_SUCCESS` is required."""
    put(tmp_path / "db" / "v" / "_SUCCESS", b"")
    put(tmp_path / "db" / "v" / "_temporary" / "0" / "part-0")
    put(tmp_path / "db" / "v" / ".hidden" / "part-0")
    for required in (False, True):
        version = SourceRoot(tmp_path, FILES, require_success_file=required).version("db", "v")
        assert (version.files, version.waiting_for) == ((), "a data file")


def test_a_checksum_file_is_no_data_and_may_be_a_link(tmp_path):
    """A link may lead below the root, as for data; a link out of the root and a directory are errors."""
    put(tmp_path / "root" / "db" / "v" / "part-0")
    put(tmp_path / "root" / "db" / "v" / ".other.crc")
    put(tmp_path / "root" / "crc")
    source = SourceRoot(tmp_path / "root", FILES)
    assert source.version("db", "v").files[0].checksums is None
    beside = tmp_path / "root" / "db" / "v" / ".part-0.crc"
    beside.symlink_to(tmp_path / "root" / "crc")
    assert source.version("db", "v").files[0].checksums.path == str(tmp_path / "root" / "crc")
    beside.unlink()
    beside.symlink_to("/etc/hosts")
    with pytest.raises(SourceError, match=r"\.part-0\.crc: the link leads out"):
        source.version("db", "v")
    beside.unlink()
    beside.mkdir()
    with pytest.raises(SourceError, match=r"\.part-0\.crc: a directory"):
        source.version("db", "v")


@pytest.mark.parametrize(
    ("times_ns", "newest_ms"),
    [([], 0), ([0, 0], 0), ([-5, 0], 0), ([1_999_999, 3_000_001], 3), ([7, 10**30, 8], 1 << 53)],
)
def test_the_newest_time_among_files(times_ns, newest_ms):
    """The time is in whole milliseconds, 0 if unknown, and limited to what can be published."""
    files = tuple(SourceFile(f"part-{at}", "/x", 1, time_ns) for at, time_ns in enumerate(times_ns))
    assert SourceVersion("db", "v1", files).newest_ms == newest_ms
