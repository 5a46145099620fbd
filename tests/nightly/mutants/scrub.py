"""Bugs planted in the scrub: what may not be left out of looking again, telling of it, and acting upon it."""

from __future__ import annotations

from tests.nightly.mutants.mutant import planted

SCRUB = "gossipkv.dataset.scrub"
VERSION = "gossipkv.dataset.local.version"
TESTS = "tests/unit/dataset/scrub"
PIECES = "for at in range(0, label.body_bytes, PIECE_BYTES):"


MUTANTS_OF_SCRUB = (
    planted(
        "what was checked is never forgotten",
        f"{SCRUB}.scrub:Scrub._forget_in_slices",
        "version.forget_checks((begin + slice_) % slices, slices)",
        "pass",
        f"{TESTS}/test_scrub.py",
    ),
    planted(
        "one slice is forgotten over and over",
        f"{SCRUB}.scrub:Scrub._forget_in_slices",
        "slice_ += 1",
        "pass",
        f"{TESTS}/test_scrub.py",
    ),
    planted(
        "the first file of a version alone is forgotten",
        f"{VERSION}:Version.forget_checks",
        "for partition, file in enumerate(self.files):",
        "for partition, file in enumerate(self.files[:1]):",
        f"{TESTS}/test_scrub.py",
    ),
    planted(
        "the verdict of the child that reads back is ignored",
        f"{SCRUB}.scrub:Scrub._read_back_whole",
        "self._on_damage(version, damage)",
        "pass",
        f"{TESTS}/test_scrub.py",
    ),
    planted(
        "damage is noted as whole",
        f"{SCRUB}.scrub:Scrub._read_back_whole",
        "if not damaged and version in self._versions():",
        "if version in self._versions():",
        f"{TESTS}/test_scrub.py",
        by="assertion of write_scrubbed",
    ),
    planted(
        "a restart forgets when a version was read back",
        f"{VERSION}:open_version",
        "version.checked_ms = built_ms if version.scrubbed is None else version.scrubbed.at_ms",
        "version.checked_ms = built_ms",
        f"{TESTS}/test_scrub.py",
    ),
    planted(
        "what was let go is read back to its end",
        f"{SCRUB}.scrub:Scrub.versions_changed",
        "self._scope.cancel()",
        "pass",
        f"{TESTS}/test_scrub.py",
    ),
    planted(
        "the cache is read back and not the disk",
        "gossipkv.environment.direct_files:DirectFiles.open",
        "return super().open(path, flags | self._direct, mode)",
        "return super().open(path, flags, mode)",
        "tests/unit/environment/test_direct_files.py",
    ),
    planted(
        "a damaged file is passed over",
        f"{SCRUB}.read_back:read_back",
        "on_damage(_damage(str(path), error))",
        "pass",
        f"{TESTS}/test_read_back.py",
    ),
    planted(
        "records are not read back",
        f"{SCRUB}.read_back:_check",
        PIECES,
        PIECES.replace("label.body_bytes", "0"),
        f"{TESTS}/test_read_back.py",
    ),
    planted(
        "the short last piece of a file is not read back",
        f"{SCRUB}.read_back:_check",
        PIECES,
        PIECES.replace("label.body_bytes", "max(1, label.body_bytes - PIECE_BYTES)"),
        f"{TESTS}/test_read_back.py",
    ),
    planted(
        "half of each piece of a file is read back",
        f"{SCRUB}.read_back:_check",
        "body.read(at, min(PIECE_BYTES, label.body_bytes - at))",
        "body.read(at, min(PIECE_BYTES // 2, label.body_bytes - at))",
        f"{TESTS}/test_read_back.py",
    ),
    planted(
        "a damaged version is trusted",
        "gossipkv.dataset.lifecycle.copies:Copies.damaged",
        "version.distrust()",
        "pass",
        "tests/unit/dataset/test_database.py",
    ),
    planted(
        "what is damaged again is built again at once",
        "gossipkv.dataset.lifecycle.copy_states:Copy.damage",
        "self.not_before_ms = now_ms + pause_ms",
        "pass",
        "tests/unit/dataset/test_lifecycle.py",
    ),
)
