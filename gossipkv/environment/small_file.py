"""Small files that people write: settings, certificates, and private ones for their owner only (keys, users).

A read takes at most the maximum size of the file's kind. Pipes, such as `<(…)`, can be read only once: commands copy
their content to memory. A private file is refused while anybody but its owner may read or write it. A file of root with
mode 0440 may belong to a group of this process, since secrets for users other than root are mounted so. Files are
replaced as a whole: written beside, synced, renamed. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_SECRET: Final = 0o440


class Kind(NamedTuple):
    """A kind of file: its name in messages, its maximum size, and advice besides `chmod` if others could read it."""

    name: str
    most_bytes: int
    advice: str = ""
    is_private: bool = True  # Otherwise it may also be a pipe, and readable by anybody.


def read_text(path: Path, kind: Kind) -> str:
    """Return the text of a file of this kind.

    Raises:
        ConfigError: as `read`, or the file is not text.
    """
    try:
        return read(path, kind).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: the {kind.name} is not UTF-8 text") from None


def read(path: Path, kind: Kind) -> bytes:
    """Return the content of a file of this kind.

    Raises:
        ConfigError: the file cannot be read, or is too long; or a private file is readable by others, or not regular.
    """
    try:
        with open(path, "rb", opener=_open_at_once if kind.is_private else None) as file:
            if kind.is_private:
                _check_private(path, kind, os.fstat(file.fileno()))
            data = file.read(kind.most_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{path}: the {kind.name} cannot be read: {error.strerror or error}") from error
    if len(data) > kind.most_bytes:
        raise ConfigError(f"{path}: the {kind.name} has more than {kind.most_bytes:,} bytes, which is the limit")
    return data


@contextlib.contextmanager
def rereadable(path: Path, kind: Kind) -> Iterator[Path]:
    """Yield a path from which a file of this kind can be read several times, also by child processes.

    The path is the same unless the file is a pipe or a device: their content is copied to memory. Others cannot read
    the copy, so a private file may be a pipe here.

    Raises:
        ConfigError: a file that is copied is too long, or cannot be read.
    """
    if path.is_file():
        yield path
        return
    data = read(path, kind._replace(is_private=False))
    with os.fdopen(os.memfd_create(kind.name), "wb", buffering=0) as copy:
        os.fchmod(copy.fileno(), 0o600)
        copy.write(data)
        yield Path(f"/proc/{os.getpid()}/fd/{copy.fileno()}")


def _check_private(path: Path, kind: Kind, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{path}: the {kind.name} must be a regular file")
    if found.st_mode & _OTHERS and not _is_secret_of_group(found):
        raise ConfigError(
            f"{path}: other users than the owner can read or write the {kind.name} "
            f"(mode {stat.S_IMODE(found.st_mode):04o}); run `chmod 600` on it{kind.advice}"
        )


def _is_secret_of_group(found: os.stat_result) -> bool:
    """Return True if only root and a group of this process may read the file, and nobody may write it."""
    is_ours = found.st_uid == 0 and found.st_gid in {os.getegid(), *os.getgroups()}
    return is_ours and stat.S_IMODE(found.st_mode) == _SECRET


def _open_at_once(path: str, flags: int) -> int:
    """Open without blocking, since a named pipe would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def write_text(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace the file at `path`, readable by its owner only; the owner stays the same.

    Raises:
        OSError: the system refused; the old file remains.
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
    """Keep the owner, or root's group, so that the node can still read a file that the superuser edits."""
    if before.st_uid != os.geteuid():
        os.fchown(descriptor, before.st_uid, before.st_gid)
    elif before.st_uid == 0 and stat.S_IMODE(before.st_mode) == _SECRET:
        os.fchown(descriptor, 0, before.st_gid)
        os.fchmod(descriptor, _SECRET)


def edit(path: Path, kind: Kind, change: Callable[[str], str], *, makes: bool = False) -> bool:
    """Replace a file by `change` of its text; returns True if it differs. `makes`: a missing file counts as empty.

    Concurrent edits run one after the other.

    Raises:
        ConfigError: see `read_text`; and any error of `change`: the old file remains.
        OSError: the system refused; the old file remains.
    """
    target = path.resolve()
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # The file itself is about to be replaced, so its lock would not help.
        before = "" if makes and not target.exists() else read_text(target, kind)
        after = change(before)
        if after != before:
            write_text(target, after)
        return after != before
    finally:
        os.close(directory)
