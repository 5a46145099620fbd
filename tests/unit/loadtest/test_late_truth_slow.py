"""A process reads versions that appear during a load, and passes them on."""

from __future__ import annotations

import json
import os
import signal
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from gossipkv.address import Address
from gossipkv.loadtest.late_truth import LateTruth
from gossipkv.loadtest.plan import LoadPlan, LoadTarget, TruthFile

NODE = LoadTarget("gossipkv", Address("127.0.0.1", 7070))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a source root with one version."""
    put(tmp_path, "1", "a\tone\n")
    return tmp_path


def put(root: Path, version: str, text: str) -> None:
    place = root / "geo" / version
    place.mkdir(parents=True)
    (place / "part-0.tsv").write_text(text)


class Heard:
    """Events of a late truth, and the versions that it passed on with their content."""

    def __init__(self, *places: Path) -> None:
        self.events: list[tuple[str, str, str]] = []
        self.taken: list[tuple[str, bytes]] = []
        truth = tuple(TruthFile(str(place)) for place in places)
        self.stack = ExitStack()
        plan = LoadPlan(targets=(NODE,), database="geo", truth=truth)
        self.late = LateTruth(plan, self.tell, self.take, self.stack)

    def tell(self, what: str, who: str, detail: str) -> None:
        self.events.append((what, who, detail))

    def take(self, version: str, file: Path) -> None:
        self.taken.append((version, file.read_bytes()))

    def hear(self, count: int) -> None:
        while len(self.events) < count:
            self.late.step()


@pytest.mark.parametrize("inner", ["", "geo"])
def test_a_version_that_came_is_read(root: Path, inner: str) -> None:
    """Records are in key order with the last value of a key; each version is read once."""
    heard = Heard(root / inner)
    late = heard.late
    with heard.stack:
        late.step()
        put(root, "2", "b\ttwo\na\tone\nb\tlast\n")
        put(root, "3", "c\tthree\n")
        for version in ("2", "3", "2", ""):
            late.want(version)
        heard.hear(2)
        late.want("3")
        late.step()
    records = [(b"a", b"one"), (b"b", b"last")], [(b"c", b"three")]
    packed = [b"".join(struct.pack("=II", len(key), len(value)) + key + value for key, value in of) for of in records]
    assert heard.taken == list(zip(["2", "3"], packed, strict=True))
    assert heard.events == [
        ("truth", "2", "2 records, compared from now on"),
        ("truth", "3", "1 records, compared from now on"),
    ]


def test_what_cannot_be_read_is_told(root: Path) -> None:
    """A missing and a damaged version are reported, and then the next one is read."""
    put(root, "2", "no tab\n")
    put(root, "4", "d\tfour\n")
    heard = Heard(root)
    late = heard.late
    with heard.stack:
        for version in ("3", "2", "4"):
            late.want(version)
        heard.hear(3)
    assert [version for version, _ in heard.taken] == ["4"]
    assert heard.events[0] == ("truth", "3", f"cannot be read: {root} has no version 3")
    assert heard.events[1][2].startswith("cannot be read: ")
    assert "line 1" in heard.events[1][2]


def test_a_reader_that_dies_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event has the signal."""
    monkeypatch.setattr(json, "dumps", lambda order, dumps=json.dumps: (kill(order), dumps(order))[1])
    heard = Heard(root)
    late = heard.late
    with heard.stack:
        late.want("1")
        heard.hear(1)
    assert heard.events == [("truth", "1", "cannot be read: the reading process was killed by signal 9")]
    assert heard.taken == []


def kill(order: dict[str, object]) -> None:
    """Kill the process that is about to receive this order, the only child with this leash."""
    if "worn" in order:
        for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)


def test_a_file_has_no_later_versions(root: Path) -> None:
    """Later versions of a file or of a single version's directory are not read."""
    heard = Heard(root / "geo" / "1")
    (root / "t.tsv").write_text("k\tv\n")
    for each in (heard, Heard(root / "t.tsv")):
        with each.stack:
            late = each.late
            late.want("2")
            late.step()
        assert each.events == []
