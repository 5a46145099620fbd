"""What is served, as Python sees it: versions in order, and which one answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import NotReady, NotServed, UnknownVersion
from gossipkv.node.served import Served, serve
from tests.unit.node.driven import BuiltVersion, make_version

if TYPE_CHECKING:
    from pathlib import Path


def database(*names: str, active: str | None) -> Served:
    """`db` with these versions."""
    return serve((BuiltVersion("db", name, [None]), name == active) for name in names)


def test_versions_in_order_of_their_bytes() -> None:
    """As strings, so 10 stands before 9."""
    served = database("9", "10", "a", "Z", active="9")
    assert [version.name for version in served.databases["db"].versions] == ["10", "9", "Z", "a"]


@pytest.mark.parametrize(
    ("version", "min_version", "chosen"),
    [(None, None, "2"), ("3", None, "3"), (None, "1", "2"), (None, "2", "2"), (None, "25", "3"), ("3", "2", "3")],
)
def test_the_version_that_answers(version: str | None, min_version: str | None, chosen: str) -> None:
    """The active one if that will do, else the oldest that will."""
    assert database("1", "2", "3", "4", active="2").databases["db"].choose(version, min_version).name == chosen


def test_versions_that_are_not_there() -> None:
    """Each refusal says what was asked and what is held."""
    held = database("1", "2", active="2").databases["db"]
    with pytest.raises(UnknownVersion, match="db has no version 5 here") as unknown:
        held.choose("5", None)
    assert unknown.value.details == {"database": "db", "version": "5", "held": ["1", "2"], "active": "2"}
    with pytest.raises(UnknownVersion, match="version 1 is older than min_version 2"):
        held.choose("1", "2")
    with pytest.raises(NotReady, match="no version as new as 3"):
        held.choose(None, "3")
    with pytest.raises(NotReady, match="no version ready"):
        database("1", active=None).databases["db"].choose(None, None)
    assert database("1", active=None).databases["db"].choose(None, "0").name == "1"


def test_partitions_that_are_not_here(tmp_path: Path) -> None:
    """A key whose partition is elsewhere says which; a key that no partition can hold has no file."""
    version = make_version(tmp_path, "db", "1", {b"k": b"v"}, 3)
    held = serve([(version, True)]).databases["db"].versions[0]
    file = held.file_of(b"k")
    assert file is not None
    assert file.get(b"k") == b"v"
    missing = serve([(BuiltVersion("db", "1", [None, None]), True)]).databases["db"].versions[0]
    with pytest.raises(NotServed, match=r"partition [01] of db 1 is not on this node"):
        missing.file_of(b"k")
    text = serve([(BuiltVersion("db", "1", version.files, "string"), True)]).databases["db"].versions[0]
    assert text.file_of(b"\xff") is None


def test_later_changes_of_the_library_do_not_show() -> None:
    """One `Served` is one moment: the library empties its lists when it closes a version."""
    version = BuiltVersion("db", "1", [None])
    held = serve([(version, True)]).databases["db"].versions[0]
    version.files.clear()
    assert held.files == (None,)
