"""The file that a key ring stands in, and what seals with it.

The file is refused while anybody but its owner may read or write it.  It is replaced as a whole: beside it, synced,
renamed.  `cryptography` is loaded here and only for a node that has a key ring.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import stat
from typing import TYPE_CHECKING, Final

from gossipkv.errors import ConfigError, LocalError
from gossipkv.gossip.packets.key_ring import parse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gossipkv.gossip.packets.key_ring import Key
    from gossipkv.gossip.packets.sealing import Sealing

MAX_FILE_BYTES: Final = 64 * 1024
NEEDS_CRYPTOGRAPHY: Final = "a key ring needs the package cryptography: pip install 'gossipkv[secure]'"

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_text(path: Path) -> str:
    """What stands in the file, if nobody else may read it.

    Raises:
        ConfigError: it cannot be read, others may read it, it is no regular file, or it is no text or too long.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError(f"{path}: not a regular file: this is no key ring")
            if mode & _OTHERS:
                raise ConfigError(
                    f"{path}: others than its owner may read or write this key ring "
                    f"(mode {stat.S_IMODE(mode):04o}): chmod 600 it, and change the keys if somebody may have read them"
                )
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: the key ring cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: over {MAX_FILE_BYTES} bytes: this is no key ring")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8: this is no key ring") from None


def _open_at_once(path: str, flags: int) -> int:
    """A named pipe would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def read(path: Path) -> tuple[Key, ...]:
    """The keys of the file at `path`.

    Raises:
        ConfigError: see `parse` and `read_text`.
    """
    return parse(read_text(path), str(path))


def write_text(path: Path, text: str) -> None:
    """Puts `text` at `path`, for its owner alone, in place of what was there; the owner stays who it was.

    Raises:
        OSError: the system refused; the old file stands.
    """
    target = path.resolve()  # A link stays a link.
    beside = target.with_name(f"{target.name}.tmp")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
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
    """What the superuser edits, the node must still be able to read."""
    if before.st_uid != os.geteuid():
        os.fchown(descriptor, before.st_uid, before.st_gid)


def sealing(keys: Sequence[Key], session: bytes) -> Sealing:
    """What seals and opens packets with these keys; `session` are random bytes, drawn anew at each start.

    Raises:
        LocalError: the extra `secure` is not installed.
    """
    try:
        module = importlib.import_module("gossipkv.gossip.packets.sealing")  # It alone loads cryptography.
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "cryptography":
            raise
        raise LocalError(NEEDS_CRYPTOGRAPHY) from None
    made: Sealing = module.Sealing(keys, session)
    return made
