"""Each extension has a stub, each part a test and an oracle, and the checks find missing ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.ci.tidy.extensions import PROOFS, Proof, check_names, check_parts, check_proofs, check_stubs
from tests.ci.tidy.planted import plant
from tests.ci.tidy.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

MAX_MODULES = 10
WHOLE = {
    "src_ext/gossipkv/wire/_frames.pyx": "",
    "gossipkv/wire/_frames.pyi": "",
    "tests/oracle/frames.py": "import struct\n",
    "tests/unit/wire/test_frames.py": "from tests.oracle import frames\n",
}
PROVEN = {"gossipkv.wire._frames": Proof("tests/unit/wire/test_frames.py", "tests.oracle.frames")}


def test_each_extension_has_a_stub() -> None:
    assert check_stubs(ROOT) == []


def test_each_extension_has_an_oracle() -> None:
    """The table of proofs names a test and an oracle for every extension, and the test imports the oracle."""
    assert check_proofs(ROOT, PROOFS) == []


def test_a_whole_extension_passes(tmp_path: Path) -> None:
    plant(tmp_path, WHOLE)
    assert check_stubs(tmp_path) + check_proofs(tmp_path, PROVEN) == []


def test_a_lonely_extension_and_a_lonely_stub_are_seen(tmp_path: Path) -> None:
    plant(tmp_path, {"src_ext/gossipkv/wire/_frames.pyx": "", "gossipkv/wire/_other.pyi": ""})
    assert len(check_stubs(tmp_path)) == 2


def test_each_part_is_of_one_extension(tmp_path: Path) -> None:
    """A part that no extension includes would not be built, and is reported."""
    assert check_parts(ROOT) == []
    plant(
        tmp_path, {"src_ext/gossipkv/wire/_wire.pyx": 'include "frames.pyx"\n', "src_ext/gossipkv/wire/frames.pyx": ""}
    )
    assert check_parts(tmp_path) == []
    plant(tmp_path, {"src_ext/gossipkv/wire/bare.pxd": ""})
    assert check_parts(tmp_path) == ["src_ext/gossipkv/wire/bare.pxd: included 0 times, a part is once"]


def test_the_head_of_serving_lists_its_folders() -> None:
    """The head of the extension has a line for each folder of parts, and each folder has at most ten modules."""
    serving = ROOT / "src_ext/gossipkv/serving"
    modules: dict[str, set[str]] = {}
    for path in serving.glob("*/*.p[yx][xd]"):
        modules.setdefault(path.parent.name, set()).add(path.stem)
    head = (serving / "_serving.pyx").read_text(encoding="utf-8").split('"""')[1]
    assert sorted(re.findall(r"^    (\w+)/ +\S", head, re.MULTILINE)) == sorted(modules)
    assert {folder: len(found) for folder, found in modules.items() if len(found) > MAX_MODULES} == {}


def test_parts_share_no_constant(tmp_path: Path) -> None:
    """A name of two parts, or of a part and of another part's cimport, would have one of the two values."""
    assert check_names(ROOT) == []
    source = "src_ext/gossipkv/wire"
    plant(
        tmp_path,
        {
            f"{source}/_wire.pyx": 'include "one.pyx"\ninclude "two.pyx"\n',
            f"{source}/one.pyx": "from gossipkv.storage._storage cimport FAR\ncdef enum:\n    SIZE = 1\n    ONE = 1\n",
            f"{source}/two.pyx": "cdef enum:\n    FAR = 2\n    SIZE = 2\n    TWO = 2\n",
        },
    )
    assert [fault.split(" is ")[0] for fault in check_names(tmp_path)] == [
        "gossipkv.wire._wire: FAR",
        "gossipkv.wire._wire: SIZE",
    ]


def test_an_unproven_extension_is_seen(tmp_path: Path) -> None:
    """A missing line and a line without an extension are reported."""
    plant(tmp_path, WHOLE)
    assert check_proofs(tmp_path, {}) == ["gossipkv.wire._frames: no line in the table of proofs"]
    extra = PROVEN | {"gossipkv.wire._gone": PROVEN["gossipkv.wire._frames"]}
    assert check_proofs(tmp_path, extra) == ["gossipkv.wire._gone: in the table of proofs, but no extension"]


def test_a_missing_test_or_oracle_is_seen(tmp_path: Path) -> None:
    plant(tmp_path, {"src_ext/gossipkv/wire/_frames.pyx": ""})
    assert len(check_proofs(tmp_path, PROVEN)) == 2


def test_a_partial_oracle_is_seen(tmp_path: Path) -> None:
    """An oracle that imports the package proves nothing, nor does an oracle that the test does not import."""
    plant(tmp_path, WHOLE | {"tests/oracle/frames.py": "from gossipkv.wire import frames\n"})
    (wrong,) = check_proofs(tmp_path, PROVEN)
    assert "imports what it is to judge" in wrong
    plant(tmp_path, WHOLE | {"tests/unit/wire/test_frames.py": "import struct\n"})
    (wrong,) = check_proofs(tmp_path, PROVEN)
    assert "does not import tests.oracle.frames" in wrong
