"""The file of a key ring, and the loading of `cryptography` for a node that has one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from gossipkv.environment import small_file
from gossipkv.errors import LocalError
from gossipkv.gossip.packets.key_ring import parse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gossipkv.gossip.packets.key_ring import Key
    from gossipkv.gossip.packets.sealing import Sealing

KEY_RING: Final = small_file.Kind("key ring", 64 * 1024, ", and change the keys if others may have read them")
NEEDS_CRYPTOGRAPHY: Final = "a key ring needs the package cryptography: pip install 'gossipkv[secure]'"


def read(path: Path) -> tuple[Key, ...]:
    """Return the keys of the file at `path`.

    Raises:
        ConfigError: see `parse` and `small_file.read_text`.
    """
    return parse(small_file.read_text(path, KEY_RING), str(path))


def sealing(keys: Sequence[Key], session: bytes) -> Sealing:
    """Return the sealer of packets with these keys; `session` is random bytes, drawn anew at each start.

    Raises:
        LocalError: the extra `secure` is not installed.
    """
    try:
        module = importlib.import_module("gossipkv.gossip.packets.sealing")  # Only this module loads cryptography.
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "cryptography":
            raise
        raise LocalError(NEEDS_CRYPTOGRAPHY) from None
    sealer: Sealing = module.Sealing(keys, session)
    return sealer
