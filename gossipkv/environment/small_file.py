"""Small files that people write: settings, certificates, and those that their owner alone may read: keys, users.

No more of a file is read than its kind may have.  A private file is refused while anybody but its owner may read or
write it.  A file of root with mode 0440 may be of a group of this process: so secrets are mounted for users that are
not root.  It is replaced as a whole: beside it, synced, renamed.  Everything here blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_SECRET: Final = 0o440


class Kind(NamedTuple):
    """What a file is, for messages; how long it may be; and what to do beside `chmod` if others could read it."""

    name: str
    most_bytes: int
    advice: str = ""
    is_private: bool = True  # Else it may be a pipe as well, and anybody may read it.


def read_text(path: Path, kind: Kind) -> str:
    """Return the text of a file of this kind.

    Raises:
        ConfigError: as `read`, or it is no text.
    """
    try:
        return read(path, kind).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8: this is no {kind.name}") from None


def read(path: Path, kind: Kind) -> bytes:
    """Return the content of a file of this kind.

    Raises:
        ConfigError: it cannot be read, or is too long.  A private file: others may read it, or it is no regular file.
    """
    try:
        with open(path, "rb", opener=_open_at_once if kind.is_private else None) as file:
            if kind.is_private:
                _check_private(path, kind, os.fstat(file.fileno()))
            data = file.read(kind.most_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{path}: the {kind.name} cannot be read: {error.strerror or error}") from error
    if len(data) > kind.most_bytes:
        raise ConfigError(f"{path}: over {kind.most_bytes} bytes: this is no {kind.name}")
    return data


def _check_private(path: Path, kind: Kind, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{path}: not a regular file: this is no {kind.name}")
    if found.st_mode & _OTHERS and not _is_secret_of_group(found):
        raise ConfigError(
            f"{path}: others than its owner may read or write this {kind.name} "
            f"(mode {stat.S_IMODE(found.st_mode):04o}): chmod 600 it{kind.advice}"
        )


def _is_secret_of_group(found: os.stat_result) -> bool:
    """True if root alone and a group of this process may read a file, and nobody may write it."""
    is_ours = found.st_uid == 0 and found.st_gid in {os.getegid(), *os.getgroups()}
    return is_ours and stat.S_IMODE(found.st_mode) == _SECRET


def _open_at_once(path: str, flags: int) -> int:
    """A named pipe would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def write_text(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Puts `text` at `path`, for its owner alone, in place of what was there; the owner stays who it was.

    Raises:
        OSError: the system refused; the old file stands.
    """
    target = path.resolve()  # A link stays a link.
    beside = target.with_name(f"{target.name}.tmp")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            with contextlib.suppress(FileNotFoundError):
                _keep_owner(descriptor, target.stat())
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        beside.replace(target)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _keep_owner(descriptor: int, before: os.stat_result) -> None:
    """What the superuser edits, the node must still be able to read: as its owner, or as its group."""
    if before.st_uid != os.geteuid():
        os.fchown(descriptor, before.st_uid, before.st_gid)
    elif before.st_uid == 0 and stat.S_IMODE(before.st_mode) == _SECRET:
        os.fchown(descriptor, 0, before.st_gid)
        os.fchmod(descriptor, _SECRET)


def edit(path: Path, kind: Kind, change: Callable[[str], str], *, makes: bool = False) -> bool:
    """Replace the file by what `change` makes of its text; whether that differs.  `makes`: where none is, of no text.

    Two who edit at once do so one after the other.

    Raises:
        ConfigError: see `read_text`; and whatever `change` raises: the old file stands.
        OSError: the system refused; the old file stands.
    """
    target = path.resolve()
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # And not the file, which another one is about to replace.
        before = "" if makes and not target.exists() else read_text(target, kind)
        after = change(before)
        if after != before:
            write_text(target, after)
        return after != before
    finally:
        os.close(directory)
