"""Files for their owner alone are replaced atomically, refused if others may access them, and edited one at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.environment import small_file
from gossipkv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = "one\n"
KIND = small_file.Kind("list", 64 * 1024, ", and write it anew")


def test_a_file_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    """The mode is 0600 for any umask and old mode, and nothing is left beside the file."""
    path = tmp_path / "file"
    path.write_text("older")
    path.chmod(0o644)
    (tmp_path / "file.tmp").write_text("a crash left it")
    small_file.write_text(path, TEXT)
    assert path.stat().st_mode & 0o777 == 0o600
    assert small_file.read_text(path, KIND) == TEXT
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_the_old_file_stands_when_the_new_cannot_be_written(tmp_path: Path) -> None:
    """A target that cannot be replaced leaves everything as it was."""
    path = tmp_path / "file"
    path.mkdir()
    (path / "inside").write_text("x")
    with pytest.raises(OSError, match="file"):
        small_file.write_text(path, "new")
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """The target of the link is replaced."""
    (tmp_path / "real").mkdir()
    small_file.write_text(tmp_path / "real" / "file", "older")
    (tmp_path / "file").symlink_to(tmp_path / "real" / "file")
    small_file.write_text(tmp_path / "file", TEXT)
    assert (tmp_path / "file").is_symlink()
    assert small_file.read_text(tmp_path / "real" / "file", KIND) == TEXT


def test_the_owner_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an edit by the superuser the file still belongs to the node's user."""
    path = tmp_path / "file"
    small_file.write_text(path, TEXT)
    given = []
    monkeypatch.setattr(small_file.os, "fchown", lambda _, user, group: given.append((user, group)))
    small_file.write_text(path, TEXT)
    assert given == []
    monkeypatch.setattr(small_file.os, "geteuid", lambda: path.stat().st_uid + 1)
    small_file.write_text(path, TEXT)
    assert given == [(path.stat().st_uid, path.stat().st_gid)]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o660, 0o601])
def test_a_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    """The error names the file, its mode and the remedy."""
    path = tmp_path / "file"
    small_file.write_text(path, TEXT)
    path.chmod(mode)
    try:
        told = small_file.read_text(path, KIND)
    except ConfigError as refused:
        told = str(refused)
    assert told.startswith(f"{path}: other users")
    assert told.endswith(f"the list (mode {mode:04o}); run `chmod 600` on it, and write it anew")
    path.chmod(0o400)
    assert small_file.read_text(path, KIND)


@pytest.mark.parametrize(
    ("uid", "gid", "mode", "is_read"),
    [
        (0, 70, 0o440, True), (0, 71, 0o440, True), (0, 70, 0o640, False), (0, 72, 0o440, False), (5, 70, 0o440, False),
        (0, 70, 0o444, False), (0, 70, 0o460, False), (0, 70, 0o450, False), (5, 70, 0o400, True),
    ],
)  # fmt: skip
def test_a_secret_of_root_that_this_group_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, gid: int, mode: int, *, is_read: bool
) -> None:
    """A file that is mounted for a user other than root belongs to root; only the user's group may read it."""
    path = tmp_path / "file"
    small_file.write_text(path, TEXT)
    found = os.stat_result((0o100000 | mode, 1, 1, 1, uid, gid, 4, 0, 0, 0))
    monkeypatch.setattr(small_file.os, "fstat", lambda _: found)
    monkeypatch.setattr(small_file.os, "getegid", lambda: 70)
    monkeypatch.setattr(small_file.os, "getgroups", lambda: [71])
    if is_read:
        assert small_file.read_text(path, KIND) == TEXT
    else:
        with pytest.raises(ConfigError, match=f"mode {mode:04o}"):
            small_file.read_text(path, KIND)


def test_a_secret_that_root_edits_stays_its_group_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group may still read it, and no others."""
    path, given = tmp_path / "file", []
    small_file.write_text(path, TEXT)
    before = os.stat_result((0o100440, 1, 1, 1, 0, 70, 4, 0, 0, 0))
    monkeypatch.setattr(small_file.os, "geteuid", lambda: 0)
    monkeypatch.setattr(small_file.os, "fchown", lambda _, user, group: given.append((user, group)))
    monkeypatch.setattr(type(path), "stat", lambda *_, **__: before)
    small_file.write_text(path, TEXT)
    monkeypatch.undo()
    assert given == [(0, 70)]
    assert path.stat().st_mode & 0o777 == 0o440


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "No such file"), (b"\xff\xfe", "not UTF-8"), (b"#" * 70_000, "more than 65,536 bytes")],
)
def test_what_is_none_is_refused(tmp_path: Path, content: bytes | None, told: str) -> None:
    """A missing, binary or long file is an error with the file's name."""
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    with pytest.raises(ConfigError, match=told) as refused:
        small_file.read_text(path, KIND)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("kind", ["pipe", "directory", "device"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """A pipe without a writer does not block the reader."""
    path = tmp_path / "file"
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
    assert "directory" in told[0] if kind == "directory" else "must be a regular file" in told[0]


def _refused_as(path: Path, told: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        small_file.read_text(path, KIND)
    told.append(str(refused.value))


@pytest.mark.parametrize("is_private", [False, True])
def test_a_pipe_is_read_many_times(is_private: bool) -> None:
    """The pipe can be read as long as the copy is there; too long a pipe is refused."""
    kind = KIND._replace(is_private=is_private)
    with pipe(TEXT) as path, small_file.rereadable(path, kind) as copy:
        assert [told(copy, kind) for _ in range(2)] == [TEXT, TEXT]
    assert not copy.exists()
    with pipe(TEXT) as path, pytest.raises(ConfigError, match=f"^{path}: the list has more than 3 bytes"):
        small_file.rereadable(path, kind._replace(most_bytes=3)).__enter__()


def told(path: Path, kind: small_file.Kind) -> str:
    """Return the text read, or the error."""
    try:
        return small_file.read_text(path, kind)
    except ConfigError as refused:
        return str(refused)


def test_a_file_is_read_where_it_is(tmp_path: Path) -> None:
    """The file may be replaced and read again."""
    path = tmp_path / "file"
    small_file.write_text(path, TEXT)
    with small_file.rereadable(path, KIND) as copy:
        assert copy == path


@contextlib.contextmanager
def pipe(text: str) -> Iterator[Path]:
    """Yield the path of a pipe with this text."""
    out, into = os.pipe()
    os.write(into, text.encode())
    os.close(into)
    try:
        yield Path(f"/dev/fd/{out}")
    finally:
        os.close(out)


def test_an_edit_makes_the_file_only_if_it_may(tmp_path: Path) -> None:
    """A missing file is made only on request, and a file that others may read is not changed."""
    path = tmp_path / "file"
    with pytest.raises(ConfigError, match="No such file"):
        small_file.edit(path, KIND, lambda text: text + TEXT)
    assert small_file.edit(path, KIND, lambda text: text + TEXT, makes=True)
    assert not small_file.edit(path, KIND, lambda text: text)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="run `chmod 600` on it, and write it anew"):
        small_file.edit(path, KIND, lambda text: text + TEXT, makes=True)
    assert path.read_text() == TEXT


def test_an_edit_that_fails_changes_nothing(tmp_path: Path) -> None:
    """The next edit is not blocked."""
    path = tmp_path / "file"
    small_file.write_text(path, TEXT)
    with pytest.raises(ZeroDivisionError):
        small_file.edit(path, KIND, lambda _: str(1 // 0))
    assert small_file.edit(path, KIND, lambda text: text + TEXT)
    assert path.read_text() == TEXT * 2


def test_of_two_edits_at_once_none_is_lost(tmp_path: Path) -> None:
    """The second waits until the first has replaced the file."""
    path = tmp_path / "file"
    editors = [
        threading.Thread(target=lambda: [small_file.edit(path, KIND, _one_more, makes=True) for _ in range(20)])
        for _ in range(4)
    ]
    for editor in editors:
        editor.start()
    for editor in editors:
        editor.join()
    assert path.read_text() == TEXT * 80


def _one_more(text: str) -> str:
    return text + TEXT
