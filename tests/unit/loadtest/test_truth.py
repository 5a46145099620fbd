"""The truth: files and directories, read as a node reads them."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from gossipkv.address import Address
from gossipkv.errors import ConfigError, SourceError
from gossipkv.loadtest.plan import LoadPlan, LoadTarget, PlanError, TruthFile
from gossipkv.loadtest.truth import MAX_VERSIONS, NEWEST_VERSIONS, Truth, read_truth

if TYPE_CHECKING:
    from pathlib import Path

NODE = LoadTarget("gossipkv", Address("127.0.0.1", 7070))


def read(*truth: Path | TruthFile, **more: object) -> Truth:
    files = tuple(each if isinstance(each, TruthFile) else TruthFile(str(each)) for each in truth)
    return read_truth(LoadPlan(targets=(NODE,), database="geo", truth=files, **more))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a source root with two versions of one database."""
    for version, text in (("1", "a\tone\nb\ttwo\n"), ("2", "b\tTWO\nc\tthree\nc\tlast\n")):
        place = tmp_path / "root" / "geo" / version
        place.mkdir(parents=True)
        (place / "part-0.tsv").write_text(text)
        (place / "_SUCCESS").touch()
    return tmp_path / "root"


def test_a_source_root_has_values_by_version(root: Path) -> None:
    """Each version has its own values; keys are those of all versions, and the last record of a key counts."""
    truth = read(root)
    assert truth.keys == [b"a", b"b", b"c"]
    assert truth.values == {"1": [b"one", b"two", None], "2": [None, b"TWO", b"last"]}
    assert (truth.is_whole, truth.present, truth.population) == (True, 3, None)
    assert read(root / "geo") == truth


def test_of_many_versions_the_newest_are_the_truth(tmp_path: Path) -> None:
    """The number of versions is limited by memory, with room for later ones; keys are those of these versions."""
    versions = [f"{number:03}" for number in range(NEWEST_VERSIONS + 3)]
    for version in versions:
        place = tmp_path / "geo" / version
        place.mkdir(parents=True)
        (place / "part-0.tsv").write_text(f"all\t{version}\nof-{version}\tvalue\n")
    truth = read(tmp_path)
    newest = versions[3:]
    assert list(truth.values) == newest
    assert truth.keys == [b"all", *(b"of-%b" % version.encode() for version in newest)]
    assert [values[0] for values in truth.values.values()] == [version.encode() for version in newest]
    records = truth.records(ordered=True)
    late = [records.adopt(records.prepare(f"late-{number}", b"")) for number in range(5)]
    assert late == [True, True, True, True, False]


def test_more_versions_than_can_be_compared_with(tmp_path: Path) -> None:
    """The error comes before any request; the limit itself is accepted."""
    place = tmp_path / "t.tsv"
    place.write_bytes(b"k\tv\n")
    given = [TruthFile(str(place), str(number)) for number in range(MAX_VERSIONS + 1)]
    assert read(*given[1:]).records(ordered=True).record(0, str(MAX_VERSIONS)) == (b"k", b"v")
    with pytest.raises(PlanError, match=f"{MAX_VERSIONS + 1} versions"):
        read(*given)


def test_one_version_alone(root: Path) -> None:
    """A version's directory belongs to that version or to a given one."""
    assert read(root / "geo" / "1").values == {"1": [b"one", b"two"]}
    assert read(TruthFile(str(root / "geo" / "1"), "7")).values == {"7": [b"one", b"two"]}


def test_a_file_is_of_every_version(tmp_path: Path) -> None:
    """A file belongs to every version unless one is given; it may be compressed, and may be a sample."""
    (tmp_path / "t.tsv").write_bytes(b"k\tv\nl\t\n")
    (tmp_path / "u.tsv.gz").write_bytes(gzip.compress(b"k\tw\n"))
    truth = read(tmp_path / "t.tsv", TruthFile(str(tmp_path / "u.tsv.gz"), "2"))
    assert truth.values == {None: [b"v", b""], "2": [b"w", None]}
    assert not truth.is_whole


def test_a_file_of_keys_says_which_are_asked_for(root: Path, tmp_path: Path) -> None:
    """The file's order repeats; a key that a whole truth lacks is absent, and otherwise unknown."""
    keys = tmp_path / "keys"
    keys.write_bytes(b"c\nnew\na\nc\n")
    truth = read(root, keys=str(keys))
    assert [truth.keys[number] for number in truth.population or ()] == [b"c", b"new", b"a", b"c"]
    assert truth.values["1"] == [b"one", b"two", None, None]
    alone = read(keys=str(keys))
    assert (alone.keys, alone.values) == ([b"c", b"new", b"a"], {None: [..., ..., ...]})
    (tmp_path / "t.tsv").write_bytes(b"c\tv\n")
    assert read(tmp_path / "t.tsv", keys=str(keys)).values == {None: [b"v", ..., ...]}


def test_absent_keys_are_absent(tmp_path: Path) -> None:
    """Absent keys are new, unique, the same for a seed, and without a value in any version."""
    (tmp_path / "t.tsv").write_bytes(b"k\tv\nk~absent~0\tw\n")
    truth = read(tmp_path / "t.tsv", misses=0.1)
    absent = truth.keys[truth.present :]
    assert absent
    assert len(set(truth.keys)) == len(truth.keys)
    assert truth.values[None][truth.present :] == [None] * len(absent)
    assert truth == read(tmp_path / "t.tsv", misses=0.1)


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (b"", PlanError, "no record"),
        (b"\n\n", PlanError, "no record"),
        (b"no tab\n", SourceError, "line 1"),
        (None, PlanError, "does not exist"),
    ],
)
def test_a_truth_that_is_none(tmp_path: Path, content: bytes | None, error: type[Exception], says: str) -> None:
    """An empty, malformed or missing file is one clear error."""
    place = tmp_path / "t.tsv"
    if content is not None:
        place.write_bytes(content)
    with pytest.raises(error, match=says):
        read(place)


def test_directories_that_say_nothing(root: Path, tmp_path: Path) -> None:
    """An empty directory, a conflicting version and files of two formats are errors."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(PlanError, match="no record"):
        read(tmp_path / "empty")
    with pytest.raises(PlanError, match="several versions"):
        read(TruthFile(str(root), "1"))
    (root / "geo" / "1" / "part-1.json").write_text('{"key": "k", "value": "v"}\n')
    with pytest.raises(SourceError, match="one format"):
        read(root)


@pytest.mark.parametrize(("content", "says"), [(None, "cannot be read"), (b"", "the file has no key")])
def test_keys_that_are_none(tmp_path: Path, content: bytes | None, says: str) -> None:
    """A missing and an empty file of keys are errors."""
    place = tmp_path / "keys"
    if content is not None:
        place.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        read(keys=str(place))
