"""`build`: every option, sources of every kind, and a result that a node accepts as a version."""

from __future__ import annotations

import gzip
import json
import shutil
import uuid
from pathlib import Path

import fsspec
import pytest

from gossipkv.dataset import finish_version, partition_of, write_partition
from gossipkv.dataset.source.declared_partitions import Declared, read_declared
from gossipkv.storage.sorted_file import SortedFile
from tests.unit.dataset.formats.cut_reader import CutReader

RECORDS = {f"key {n}".encode(): f"value {n}".encode() for n in range(400)}


def by(function, partitions, records=RECORDS):
    """Return the records of each partition as tab-separated text."""
    files = [b""] * partitions
    for key, value in records.items():
        files[partition_of(key, partitions, function)] += key + b"\t" + value + b"\n"
    return files


@pytest.fixture
def source(tmp_path):
    """Return a function that writes a source version of these files."""

    def source(files, suffix=".tsv"):
        place = tmp_path / "source" / "geo" / "v1"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for number, data in enumerate(files):
            (place / f"part-{number}{suffix}").write_bytes(data)
        (place / "_SUCCESS").touch()
        return place

    return source


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def records(directory):
    """Return all records in the sorted files of a directory, and assert their partitions."""
    found = {}
    for path in sorted(directory.glob("*.gkv")):
        with SortedFile(path) as file:
            said = json.loads(file.metadata)
            for key, value in file.scan():
                assert partition_of(key, said["partitions"], said["function"]) == said["partition"]
                found[key] = value
    return found


def test_the_result_is_a_version(run, source, tmp_path):
    """Files are named as tasks name them, and the version is declared and finished."""
    files = by("text", 3)
    dest = tmp_path / "root" / "geo" / "v2"
    done = run("build", source([files[2], files[0], files[1]]), dest)
    assert (done.status, done.err) == (0, "")
    assert "400 records in 3 files by text, " in done.out
    assert names(dest) == [
        "_MANIFEST", "_PARTITIONS.json", "_SUCCESS", "part-00000.gkv", "part-00001.gkv", "part-00002.gkv"
    ]  # fmt: skip
    assert records(dest) == RECORDS
    assert read_declared(CutReader((dest / "_PARTITIONS.json").read_bytes())) == Declared(
        "text", 3, {f"part-0000{n}.gkv": (n,) for n in range(3)}
    )
    before = {path.name: path.read_bytes() for path in dest.glob("*.gkv")}
    again = tmp_path / "again"
    done = run("build", dest, again, "--json")
    told = json.loads(done.out)
    assert (done.status, told["format"], told["function"], told["records"]) == (0, "sorted", "text", 400)
    assert {path.name: path.read_bytes() for path in again.glob("*.gkv")} == before
    assert run("verify", again).status == 0


@pytest.mark.parametrize(
    "case",
    [
        ([], "spark", 3), (["--function", "text"], "text", 3), (["--partitions", "5"], "sequins", 5),
        (["--partitions", "5", "--function", "cascading"], "cascading", 5),
    ],
)  # fmt: skip
def test_the_function_is_recognised_unless_it_is_told(run, source, tmp_path, case):
    """With as many partitions as files, the function of the files is kept; else it is Sequins'."""
    options, function, count = case
    done = run("build", source(by("spark", 3)), tmp_path / "out", *options)
    assert (done.status, f"400 records in {count} files by {function}, " in done.out) == (0, True)
    assert records(tmp_path / "out") == RECORDS


def test_a_stray_is_told(run, source, tmp_path):
    """Standard error names key, file and offset, and the records are partitioned again."""
    files = by("text", 3)
    stray = files[1].split(b"\t")[0]
    place = source([files[0] + files[1].split(b"\n")[0] + b"\n", files[1].split(b"\n", 1)[1], files[2]])
    done = run("build", place, tmp_path / "out")
    assert (done.status, done.err.count("\n")) == (0, 1)
    at = len(files[0])
    assert (
        f"{place}/part-0.tsv: byte {at:,}: the key {stray.decode()!r} is not in its partition under text; all"
        in done.err
    )
    assert records(tmp_path / "out") == RECORDS
    assert "by sequins" in done.out


@pytest.mark.parametrize(
    "kind",
    [
        ("tsv", ".tsv", lambda key, value: key + b"\t" + value + b"\n"),
        ("json", ".jsonl", lambda key, value: json.dumps({"k": key.decode(), "v": value.decode()}).encode() + b"\n"),
    ],
)
@pytest.mark.parametrize("how", ["told", "found out", "compressed"])
def test_formats_are_found_out_or_told(run, source, tmp_path, kind, how):
    """Formats with fields take their names as options."""
    form, suffix, encode = kind
    compressed, told = how == "compressed", how == "told"
    data = b"".join(encode(key, value) for key, value in RECORDS.items())
    place = source([gzip.compress(data) if compressed else data], suffix + (".gz" if compressed else ""))
    fields = ["--key", "k", "--value", "v"] if form == "json" else []
    done = run("build", place, tmp_path / "out", *fields, *(["--format", form] if told else []))
    assert (done.status, done.err) == (0, "")
    assert f" of {form} in " in done.out
    assert records(tmp_path / "out") == RECORDS


@pytest.mark.parametrize(
    ("csv", "text"),
    [
        ('delimiter = ";", null = ["-"]', b'id;name;n\n1;"a;b";-\n'),
        ('{ header = false, columns = ["id", "name", "n"], types = { n = "int64" } }', b'1,"a;b",\n'),
        (r'delimiter = "\t"', b"id\tname\tn\n1\ta;b\t\n"),
    ],
)
def test_the_dialect_of_csv_is_told(run, source, tmp_path, csv, text):
    """It is written as in a settings file."""
    fields = ["--key", "id", "--value", "name", "--value", "n"]
    done = run("build", source([text], ".csv"), tmp_path / "out", *fields, "--nulls", "null", "--csv", csv)
    assert (done.status, done.err) == (0, "")
    assert records(tmp_path / "out") == {b"1": b'{"name":"a;b","n":null}'}


@pytest.mark.parametrize(
    ("csv", "what"),
    [
        ("header = yes", "Invalid value"),
        ('delimiter = "ab"', "delimiter: expected one"),
        ("x = 1", "unknown setting x"),
    ],
)
def test_a_wrong_dialect_is_refused(run, source, tmp_path, csv, what):
    done = run("build", source([b"a,b\n"], ".csv"), tmp_path / "out", "--csv", csv)
    assert (done.status, what in done.err, (tmp_path / "out").exists()) == (2, True, False)


@pytest.mark.parametrize("presharded", ["probe", "declared", "never"])
def test_a_build_is_spread_over_machines(run, source, tmp_path, presharded):
    """Each machine builds some partitions; the collected files are finished like those of tasks."""
    place = source(by("sequins", 5))
    held = {f"part-{number}.tsv": number for number in range(5)}
    (place / "_PARTITIONS.json").write_text(json.dumps({"function": "sequins", "partitions": 5, "files": held}))
    together = tmp_path / "root" / "geo" / "v2"
    together.mkdir(parents=True)
    for number, only in enumerate(["0,2-3", "1", "4"]):
        dest = tmp_path / f"machine-{number}"
        done = run("build", place, dest, "--only", only, "--presharded", presharded)
        assert (done.status, done.err) == (0, "")
        assert not {"_SUCCESS", "_PARTITIONS.json"} & set(names(dest))
        assert run("verify", dest).status == 0
        for path in dest.glob("part-*.gkv"):
            path.rename(together / path.name)
    report = finish_version(together, 5)
    assert (report.records, report.function) == (400, "sequins")
    assert records(together) == RECORDS
    assert "3 of 5 files by sequins" in run("build", together, tmp_path / "x", "--only", "0,1,2").out


@pytest.mark.parametrize(
    ("only", "what"),
    [
        ("5", "5: the partitions are 0 to 4; set --partitions N for more"), ("", "'': expected partitions such as"),
        ("3-1", "'3-1': expected"), ("1,,2", "'': expected"), ("0-99999999", "'0-99999999': expected"),
        ("0-20000", "below 16,384"), ("a", "'a': expected"),
    ],
)  # fmt: skip
def test_wrong_partitions_are_refused(run, source, tmp_path, only, what):
    """The refusal comes before anything is created."""
    done = run("build", source(by("sequins", 5)), tmp_path / "out", "--only", only)
    assert (done.status, what in done.err, (tmp_path / "out").exists()) == (2, True, False)


def test_a_source_may_be_a_url(run, tmp_path):
    """A URL may name a directory or a file; its last two parts name the version."""
    name = f"/{uuid.uuid4().hex}/geo/v1"
    system = fsspec.filesystem("memory")
    for number, data in enumerate(by("text", 3)):
        system.pipe_file(f"{name}/part-{number}", data)
    system.pipe_file(f"{name}/_SUCCESS", b"")
    done = run("build", f"memory:/{name}", tmp_path / "out", "--json")
    assert (done.status, done.err) == (0, "")
    told = json.loads(done.out)
    assert (told["database"], told["version"], told["function"], told["source_files"]) == ("geo", "v1", "text", 3)
    assert records(tmp_path / "out") == RECORDS
    one = run("build", f"memory:/{name}/part-1", tmp_path / "one", "--json")
    assert (one.status, json.loads(one.out)["version"], json.loads(one.out)["source_files"]) == (0, "part-1", 1)
    none = run("build", f"memory:/{name}/nothing", tmp_path / "none")
    assert (none.status, none.err.count("\n")) == (3, 1)
    assert f"memory:/{name}/nothing: cannot be read: " in none.err
    wrong = run("build", "memoryy://x", tmp_path / "none")
    assert (wrong.status, "memoryy" in wrong.err, wrong.err.count("\n")) == (3, True, 1)
    assert not (tmp_path / "none").exists()


def test_a_build_that_fails_leaves_no_directory(run, source, tmp_path):
    """DEST and the parents that were created for it are removed."""
    done = run("build", source([b"no tab\n"]), tmp_path / "made" / "for" / "it")
    assert (done.status, names(tmp_path)) == (3, ["source"])
    (tmp_path / "empty").mkdir()
    assert run("build", source([b"no tab\n"]), tmp_path / "empty" / "out").status == 3
    assert names(tmp_path / "empty") == []


def test_an_error_is_one_line_whatever_files_are_called(run, source, tmp_path):
    """The error also leaves the terminal unharmed."""
    place = source([])
    (place / "a\nb\ac").write_bytes(b"no tab\n")
    done = run("build", place, tmp_path / "out")
    assert (done.status, done.err.count("\n"), "\a" in done.err) == (3, 1, False)


def test_one_is_not_called_many(run, source, tmp_path):
    """Records, files and strays have a singular."""
    assert ": 1 record in 1 file by" in run("build", source([b"k\tv\n"]), tmp_path / "out").out


def test_a_source_may_be_a_link(run, source, tmp_path):
    """A link to a directory or a file is followed, and the link's name is used."""
    place = source(by("text", 3))
    (tmp_path / "v9").symlink_to(place)
    (tmp_path / "one.tsv").symlink_to(place / "part-1.tsv")
    told = json.loads(run("build", tmp_path / "v9", tmp_path / "out", "--json").out)
    assert (told["version"], told["records"]) == ("v9", 400)
    told = json.loads(run("build", tmp_path / "one.tsv", tmp_path / "out2", "--json").out)
    assert (told["version"], told["source_files"]) == ("one", 1)
    missing = run("build", tmp_path / "missing", tmp_path / "out3")
    assert (missing.status, "missing: cannot be read: No such file" in missing.err) == (3, True)


def test_sorted_files_that_do_not_fit_are_partitioned_anew(run, tmp_path):
    """The number of partitions or the function differs."""
    made = tmp_path / "made"
    for partition in range(3):
        held = [record for record in RECORDS.items() if partition_of(record[0], 3) == partition]
        write_partition(made, partition, 3, held)
    for options, words in (([], "3 files by sequins"), (["--partitions", "2"], "2 files by sequins"),
                           (["--function", "text"], "3 files by text")):  # fmt: skip
        dest = tmp_path / "-".join(["out", *options])
        done = run("build", made, dest, *options)
        assert (done.status, f"400 records in {words}, " in done.out) == (0, True)
        assert records(dest) == RECORDS
    Path(made / "part-00001.gkv").unlink()
    done = run("build", made, tmp_path / "incomplete")
    assert (done.status, "partition 1 is missing beside it" in done.err) == (3, True)
    assert not (tmp_path / "incomplete").exists()
