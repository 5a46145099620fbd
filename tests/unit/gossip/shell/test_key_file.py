from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import ConfigError, LocalError
from gossipkv.gossip.packets.key_ring import key, line_of
from gossipkv.gossip.shell import key_file

if TYPE_CHECKING:
    from pathlib import Path

SECRET = bytes(range(32))


def test_a_ring_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    """Mode 0600 whatever the umask and the old file had, and nothing is left beside it."""
    path = tmp_path / "ring"
    path.write_text("older")
    path.chmod(0o644)
    (tmp_path / "ring.tmp").write_text("a crash left it")
    key_file.write_text(path, line_of(key(SECRET)))
    assert path.stat().st_mode & 0o777 == 0o600
    assert key_file.read(path) == (key(SECRET),)
    assert [item.name for item in tmp_path.iterdir()] == ["ring"]


def test_the_old_ring_stands_when_the_new_cannot_be_written(tmp_path: Path) -> None:
    """A target that cannot be replaced leaves everything as it was."""
    path = tmp_path / "ring"
    path.mkdir()
    (path / "inside").write_text("x")
    with pytest.raises(OSError, match="ring"):
        key_file.write_text(path, "new")
    assert [item.name for item in tmp_path.iterdir()] == ["ring"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """What it leads to is replaced."""
    (tmp_path / "real").mkdir()
    key_file.write_text(tmp_path / "real" / "ring", "older")
    (tmp_path / "ring").symlink_to(tmp_path / "real" / "ring")
    key_file.write_text(tmp_path / "ring", line_of(key(SECRET)))
    assert (tmp_path / "ring").is_symlink()
    assert key_file.read(tmp_path / "real" / "ring") == (key(SECRET),)


def test_the_owner_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edited by another user who may, the superuser, the file is still the node's to read."""
    path = tmp_path / "ring"
    key_file.write_text(path, line_of(key(SECRET)))
    given = []
    monkeypatch.setattr(key_file.os, "fchown", lambda _, user, group: given.append((user, group)))
    key_file.write_text(path, line_of(key(SECRET)))
    assert given == []
    monkeypatch.setattr(key_file.os, "geteuid", lambda: path.stat().st_uid + 1)
    key_file.write_text(path, line_of(key(SECRET)))
    assert given == [(path.stat().st_uid, path.stat().st_gid)]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o660, 0o601])
def test_a_ring_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    """The error names the file, its mode and what to do."""
    path = tmp_path / "ring"
    key_file.write_text(path, line_of(key(SECRET)))
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}.*chmod 600"):
        key_file.read(path)
    path.chmod(0o400)
    assert key_file.read(path)


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "No such file"), (b"\xff\xfe", "not UTF-8"), (b"#" * 70_000, "no key ring"), (b"", "no key in it")],
)
def test_what_is_no_ring_is_refused(tmp_path: Path, content: bytes | None, told: str) -> None:
    """Missing, not text, too long, empty: one error that names the file."""
    path = tmp_path / "ring"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    with pytest.raises(ConfigError, match=told) as refused:
        key_file.read(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("kind", ["pipe", "directory", "device"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """A pipe without a writer does not keep whoever reads it."""
    path = tmp_path / "ring"
    match kind:
        case "pipe":
            os.mkfifo(path, 0o600)
        case "directory":
            path.mkdir(0o700)
        case _:
            path.symlink_to("/dev/zero")
    reader = threading.Thread(target=_refused_as, args=(path, told := []), daemon=True)
    reader.start()
    reader.join(10)
    assert len(told) == 1
    assert str(path) in told[0]
    assert "directory" in told[0] if kind == "directory" else "not a regular file" in told[0]


def _refused_as(path: Path, told: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        key_file.read(path)
    told.append(str(refused.value))


def test_without_the_library_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with a key ring and without the extra does not start; nothing else asks for it."""
    monkeypatch.delitem(sys.modules, "gossipkv.gossip.packets.sealing", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(LocalError, match=r"pip install 'gossipkv\[secure\]'"):
        key_file.sealing([key(SECRET)], bytes(16))


def test_the_library_is_loaded_only_for_a_ring() -> None:
    """Neither the envelope nor the reading of a ring loads it."""
    program = (
        "import sys, gossipkv.gossip.packets.envelope\n"
        "from gossipkv.gossip.packets import key_ring as r\n"
        "from gossipkv.gossip.shell import key_file as k\n"
        "assert 'cryptography' not in sys.modules\n"
        "k.sealing([r.key(bytes(32))], bytes(16))\n"
        "assert 'cryptography' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
