"""`build`, `inspect` and `verify` on real files, intact and damaged."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil

import pytest

from gossipkv.dataset.local.active import ActiveDocument
from gossipkv.environment.real_files import RealFiles
from gossipkv.launcher.plan import ClusterPlan, NodePlan
from gossipkv.node.directory import DataDirectory
from gossipkv.storage.sorted_file import SortedFile


@pytest.fixture
def source(tmp_path):
    """Return a source of one version in three files, with one repeated key."""
    directory = tmp_path / "source" / "geo" / "v1"
    directory.mkdir(parents=True)
    for number in range(3):
        lines = [f"key{number}-{line}\tvalue {line}\n" for line in range(200)] + [f"twice\tfrom file {number}\n"]
        (directory / f"part-{number}.tsv").write_text("".join(lines))
    (directory / "_SUCCESS").touch()
    return directory


@pytest.fixture
def data(run, source, tmp_path):
    """Return a data directory with that version, as a node leaves it."""
    place = tmp_path / "data"
    with DataDirectory.open(place, RealFiles(), cluster="gossipkv", random=random.Random(1), node="n1") as directory:
        built = place / "building" / "geo" / "v1"
        built.parent.mkdir()
        assert run("build", source, built).status == 0
        directory.store.publish("geo", "v1")
        directory.store.set_active("geo", ActiveDocument("v1", "v1"))
    return place


def records(directory):
    """Return the records of the sorted files of a directory, by file."""
    found = []
    for path in sorted(directory.glob("*.gkv")):
        with SortedFile(path) as file:
            found.append(dict(file.scan()))
    return found


@pytest.mark.parametrize("options", [[], ["--partitions", "2"], ["--compression", "lz4"], ["--memory", "8MiB"]])
def test_build(run, source, tmp_path, options):
    """Every record is built, the last value of a key wins, and the summary counts the replaced ones."""
    target = tmp_path / "a" / "built"
    done = run("build", source, target, *options)
    assert (done.status, done.err) == (0, "")
    files = records(target)
    count = 2 if "--partitions" in options else 3
    assert len(files) == count
    merged = {key: value for file in files for key, value in file.items()}
    assert len(merged) == sum(len(file) for file in files) == 601
    assert merged[b"twice"] == b"from file 2"
    assert merged[b"key1-7"] == b"value 7"
    assert f"601 records in {count} files by sequins, " in done.out
    assert "2 more were replaced by later records of the same key" in done.out
    assert run("verify", target).status == 0


def test_build_from_one_file(run, source, tmp_path):
    """--json describes the result."""
    done = run("build", source / "part-0.tsv", tmp_path / "out", "--json")
    told = json.loads(done.out)
    assert (done.status, told["records"], told["partitions"], told["version"]) == (0, 201, 1, "part-0")


def test_build_is_whole_or_nothing(run, source, tmp_path):
    """An error in the source leaves no files and no new directory; the error names file and line."""
    (source / "part-1.tsv").write_text("good\tline\nno tab here\n")
    target = tmp_path / "out"
    done = run("build", source, target)
    assert (done.status, done.out) == (3, "")
    assert f"{source}/part-1.tsv: line 2" in done.err
    assert not target.exists()
    target.mkdir()
    assert run("build", source, target).status == 3
    assert list(target.iterdir()) == []


def test_build_keeps_what_is_there(run, source, tmp_path):
    """A target that is not empty is refused and left alone; a source without data is refused too."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    done = run("build", source, tmp_path / "out")
    assert (done.status, done.err.count("\n")) == (3, 1)
    assert "not empty" in done.err
    assert [item.name for item in (tmp_path / "out").iterdir()] == ["precious"]
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run("build", empty, tmp_path / "out2")
    assert (done.status, "no data files" in done.err) == (3, True)
    assert not (tmp_path / "out2").exists()


def test_inspect(run, data):
    """Files, documents, versions and data directories are shown as text and as JSON."""
    version = data / "datasets" / "geo" / "v1"
    file = json.loads(run("inspect", version / "part-00000.gkv", "--json").out)
    with SortedFile(version / "part-00000.gkv") as opened:
        keys = [key.decode() for key, _ in opened.scan()]
    assert (file["records"], file["first_key"], file["last_key"]) == (len(keys), keys[0], keys[-1])
    assert file["metadata"]["database"] == "geo"
    assert "bytes a record over keys and values" in run("inspect", version / "part-00000.gkv").out
    for path in (version, version / "_MANIFEST"):
        assert json.loads(run("inspect", path, "--json").out)["kind"] == "MANIFEST"
    assert "n1" in run("inspect", data / "NODE").out
    assert json.loads(run("inspect", data / "active" / "geo", "--json").out)["version"] == "v1"
    told = json.loads(run("inspect", data, "--json").out)
    assert (told["node"], told["versions"][0]["records"], told["versions"][0]["active"]) == ("n1", 601, True)
    text = run("inspect", data).out
    assert "data directory of node n1, cluster gossipkv" in text
    assert "ACTIVE" in text


def test_inspect_what_is_none(run, tmp_path):
    """A foreign or empty file and a foreign directory give one line each."""
    (tmp_path / "foreign").write_bytes(b"something else entirely")
    (tmp_path / "empty").touch()
    for name, status in (("foreign", 3), ("empty", 3), (".", 2)):
        done = run("inspect", tmp_path / name)
        assert (done.status, done.out, done.err.count("\n")) == (status, "", 1)


def test_verify_whole(run, data):
    """Every file is counted except leftovers and the lock."""
    (data / "building" / "junk").write_bytes(b"half a file")
    (data / "datasets" / "geo" / "v1" / "x.tmp").write_bytes(b"half a file")
    done = run("verify", data)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("6 files, ")  # NODE, active/geo, MANIFEST, and three partitions.
    assert json.loads(run("verify", data, "--json").out)["damaged"] == []


def test_verify_finds_every_flipped_byte(run, data):
    """The report names each damaged file."""
    unchecked = {"LOCK", "_SUCCESS", "_PARTITIONS.json"}
    files = [path for path in sorted(data.rglob("*")) if path.is_file() and path.name not in unchecked]
    assert len(files) == 6
    chosen = random.Random(7)
    for path in files:
        whole = path.read_bytes()
        for position in sorted(chosen.sample(range(len(whole)), 12)):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x20]) + whole[position + 1 :])
            done = run("verify", data, "--json")
            told = json.loads(done.out)
            named = {item["file"] for item in told["damaged"]}
            assert (done.status, named) == (3, {str(path)}), position
        path.write_bytes(whole)
    assert run("verify", data).status == 0


def test_verify_names_what_is_missing_or_too_much(run, data):
    """A missing, a cut and a stray partition are named, and all other files are still checked."""
    version = data / "datasets" / "geo" / "v1"
    whole = (version / "part-00001.gkv").read_bytes()
    (version / "part-00001.gkv").unlink()
    done = run("verify", data)
    assert done.status == 3
    assert f"{version}/part-00001.gkv: damaged at byte 0: the file is missing" in done.out
    assert "5 files, " in done.out
    (version / "part-00001.gkv").write_bytes(whole[:-1])
    assert (
        run("verify", data).out.count(f"{version}/part-00001.gkv: damaged at byte") == 2
    )  # The footer and the manifest each show the damage.
    (version / "part-00001.gkv").write_bytes(whole)
    (version / "part-00007.gkv").write_bytes(whole)
    assert "does not list this file" in run("verify", data).out


def test_verify_refuses_what_it_cannot_look_into(run, data, monkeypatch):
    """A directory that cannot be read is an error, because its files are unchecked."""
    closed = str(data / "datasets" / "geo")
    scandir = os.scandir

    def refuse(path):
        if os.fspath(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), closed)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)  # The superuser, who may run the tests, is never refused.
    done = run("verify", data)
    assert (done.status, done.out, done.err) == (3, "", f"gossipkv: {closed}: Permission denied\n")


def test_paths_that_are_not_utf8(run, tmp_path):
    """JSON names a file whose path is any bytes."""
    path = tmp_path / os.fsdecode(b"odd\xff.gkv")
    path.write_bytes(b"nonsense")
    (told,) = json.loads(run("verify", path, "--json").out)["damaged"]
    assert told["file"] == str(path)


def test_a_version_as_a_node_would_open_it(run, source, data, tmp_path):
    """`verify` reports each fault that a node would refuse at its start."""
    version = data / "datasets" / "geo" / "v1"
    whole = {path: path.read_bytes() for path in version.iterdir()}
    manifest, first = version / "_MANIFEST", version / "part-00000.gkv"
    for path in source.glob("*.tsv"):
        path.write_text(path.read_text().replace("value", "other"))
    assert run("build", source, tmp_path / "other").status == 0
    first.write_bytes((tmp_path / "other" / first.name).read_bytes())
    assert first.stat().st_size == len(whole[first])
    done = run("verify", data)
    assert (done.status, f"{first}: damaged at byte {len(whole[first])}: the footer differs" in done.out) == (3, True)
    first.write_bytes(whole[first])
    manifest.unlink()
    done = run("verify", data)
    assert (done.status, f"{manifest}: damaged at byte 0: the manifest is missing" in done.out) == (3, True)
    manifest.write_bytes(whole[manifest])
    assert run("verify", data).status == 0
    version.rename(version.with_name("v2"))
    done = run("verify", data)
    assert (done.status, "the manifest belongs to another version (expected 'geo/v2', got 'geo/v1')" in done.out) == (
        3,
        True,
    )


def test_verify_one_file(run, data, tmp_path):
    """A single file is checked as well; a foreign file counts as damaged."""
    assert run("verify", data / "datasets" / "geo" / "v1" / "part-00002.gkv").out.startswith("1 file, ")
    (tmp_path / "x.gkv").write_bytes(b"nonsense")
    done = run("verify", tmp_path / "x.gkv")
    assert (done.status, "not a sorted file" in done.out) == (3, True)
    (tmp_path / "none").mkdir()
    assert run("verify", tmp_path / "none").status == 2


@pytest.fixture
def cluster(data, tmp_path):
    """Return the directory of a cluster of three nodes, as `cluster --data` keeps it; the third has not started."""
    place = tmp_path / "cluster"
    for index in (1, 2):
        shutil.copytree(data, place / f"n{index}" / "data")
        (place / f"n{index}" / "log").write_text("a line\n")
    (place / "n3").mkdir()
    for name in ("lock", "supervisor.log"):
        (place / name).touch()
    ClusterPlan([NodePlan(index, 7069 + index) for index in (1, 2, 3)]).save(place)
    return place


def test_verify_a_cluster(run, cluster):
    """The plan and each data directory are checked; logs and locks are not."""
    done = run("verify", cluster, "--json")
    told = json.loads(done.out)
    assert (done.status, told["kind"], told["files"], told["damaged"]) == (0, "cluster", 13, [])
    file = cluster / "n2" / "data" / "active" / "geo"
    file.write_bytes(file.read_bytes()[:-1])
    (cluster / "cluster.json").write_text("{}")
    done = run("verify", cluster)
    assert (done.status, "13 files of a cluster, " in done.out, "2 damaged" in done.out) == (3, True, True)
    assert str(file) in done.out
    assert f"{cluster}/cluster.json: damaged at byte 0: the file is not the plan of a cluster" in done.out


def test_verify_a_source_without_checksums(run, source):
    """A source of text is not damaged, and the output counts its unchecked files."""
    for place in (source, source.parent, source.parent.parent):
        done = run("verify", place)
        assert (done.status, done.err) == (0, "")
        assert done.out == "3 files of a source not checked: GossipKV keeps no checksums of source files\n"
        told = json.loads(run("verify", place, "--json").out)
        assert told == {"kind": "source", "files": 0, "size_bytes": 0, "damaged": [], "source_files": 3}


def test_verify_a_source_with_sorted_files(run, source):
    """Files that were built offline are checked beside other formats; working directories of jobs are skipped."""
    assert run("build", source, source.parent / "v2").status == 0
    for name in ("_temporary", ".staging"):
        (source / name).mkdir()
        (source / name / "part-00000.gkv").write_bytes(b"half")
    (source / ".half.gkv").write_bytes(b"half")
    for place in (source.parent, source.parent.parent):
        told = json.loads(run("verify", place, "--json").out)
        assert (told["kind"], told["files"], told["damaged"]) == ("source", 4, [])
    file = source.parent / "v2" / "part-00001.gkv"
    whole = file.read_bytes()
    file.write_bytes(whole[:300] + b"?" + whole[301:])
    done = run("verify", source.parent.parent)
    assert (done.status, f"{file}: damaged" in done.out, "1 damaged" in done.out) == (3, True, True)


def test_verify_what_is_not_ours(run, tmp_path):
    """Foreign directories and files give status 2, not the status of damage, and one line."""
    (tmp_path / "prose" / "chapter" / "one").mkdir(parents=True)
    (tmp_path / "prose" / "chapter" / "one" / "text").write_text("Call me Ishmael.\nSome years ago\n")
    (tmp_path / "mixed" / "directory").mkdir(parents=True)
    (tmp_path / "mixed" / "file").write_bytes(b"\x7fELF")
    (tmp_path / "mixed" / "directory" / "records").write_text("key\tvalue\n")
    (tmp_path / "none").mkdir()
    paths = ["/etc", "/etc/passwd", tmp_path / "prose", tmp_path / "mixed", tmp_path / "mixed" / "file"]
    for path in [*paths, tmp_path / "none"]:
        done = run("verify", path)
        told = f"gossipkv: {path}: not a file, data directory, cluster or source of GossipKV"
        assert (done.status, done.out, done.err) == (2, "", f"{told} (see gossipkv verify --help)\n")


def test_verify_a_data_directory_without_its_identity(run, data):
    """A missing NODE is damage, and the other files are still checked."""
    (data / "NODE").unlink()
    done = run("verify", data)
    assert (done.status, "6 files, " in done.out, "1 damaged" in done.out) == (3, True, True)
    assert f"{data}/NODE: No such file or directory\n" in done.out


def test_verify_our_files_wherever_they_lie(run, data, tmp_path):
    """A document may be damaged from its first byte on; a sorted file may have any name."""
    shutil.copy(data / "datasets" / "geo" / "v1" / "part-00000.gkv", tmp_path / "copy")
    assert run("verify", tmp_path / "copy").status == 0
    (data / "active" / "geo").write_bytes(b"nonsense")
    assert run("verify", data / "active" / "geo").status == 3


def test_verify_shows_how_far_it_is(run, tmp_path, monkeypatch):
    """Progress also moves within a file, because a file may have gigabytes."""
    (tmp_path / "a").write_text("".join(f"key{number:06}\t{'x' * 100}\n" for number in range(40_000)))
    assert run("build", tmp_path / "a", tmp_path / "out").status == 0
    seen = []
    monkeypatch.setattr("rich.progress.Progress.update", lambda _self, _task, completed: seen.append(completed))
    told = json.loads(run("verify", tmp_path / "out", "--json").out)
    assert len(set(seen)) > 8
    assert seen == sorted(seen)
    assert seen[-1] == told["size_bytes"]


@pytest.mark.parametrize("arguments", [[], ["here", "--table", "carts"]])
def test_a_place_or_a_table(run, arguments, tmp_path):
    """Exactly one of PATH and --table must be given."""
    (tmp_path / "here").touch()
    done = run("verify", *(str(tmp_path / one) if one == "here" else one for one in arguments))
    assert (done.status, "give either PATH or --table TABLE" in done.err) == (2, True)
