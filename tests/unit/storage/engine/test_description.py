"""What is in a store: told from its manifest and the names of its files."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt
from gossipkv.storage.engine.description import describe_store
from gossipkv.storage.engine.manifest import Manifest, Run, RunFile, SegmentName, write_manifest

FILES = RealFiles()


def run_file(name, first, last):
    """A file of a run."""
    return RunFile(name, records=10, size_bytes=1000, seal=1, first=first, last=last)


def test_what_a_store_consists_of(tmp_path):
    """Runs by the manifest, the log by its files; a file of a run that is not there is counted."""
    for name in ("log", "runs"):
        (tmp_path / name).mkdir()
    manifest = Manifest(
        store=0xABC,
        life=4,
        spaces=frozenset({1, 5}),
        next_space=6,
        next_merge=3,
        recovery_floor=SegmentName(9, 1),
        log_floor=SegmentName(7, 2),
        young=(Run((run_file("b.gkv", b"a", b"z"),)),),
        oldest=Run((run_file("a1.gkv", b"a", b"k"), run_file("a2.gkv", b"l", b"z"))),
        dropped_bytes=77,
    )
    write_manifest(FILES, tmp_path, manifest)
    (tmp_path / "log" / "0000000000000009.log").write_bytes(bytes(4096))
    for name in ("a1.gkv", "b.gkv"):
        (tmp_path / "runs" / name).write_bytes(b"?")
    assert describe_store(FILES, tmp_path) == {
        "store": "0000000000000abc", "life": 4, "spaces": 2, "young_runs": 1, "run_files": 3, "missing_run_files": 1,
        "records": 30, "run_bytes": 3000, "dropped_bytes": 77, "segments": 1, "log_bytes": 4096,
        "recovered_from": 9, "log_kept_from": 7,
    }  # fmt: skip
    write_manifest(FILES, tmp_path, replace(manifest, young=(), oldest=Run(())))
    shutil.rmtree(tmp_path / "runs")
    assert describe_store(FILES, tmp_path)["run_files"] == 0


def test_what_is_no_store(tmp_path):
    """None at all, or a damaged one: as reading the manifest says it."""
    with pytest.raises(FileNotFoundError):
        describe_store(FILES, tmp_path)
    (tmp_path / "MANIFEST").write_bytes(b"")
    with pytest.raises(Corrupt, match="MANIFEST"):
        describe_store(FILES, tmp_path)
