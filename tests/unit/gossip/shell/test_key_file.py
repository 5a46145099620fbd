from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gossipkv.environment import small_file
from gossipkv.errors import ConfigError, LocalError
from gossipkv.gossip.packets.key_ring import key, line_of
from gossipkv.gossip.shell import key_file

if TYPE_CHECKING:
    from pathlib import Path


SECRET = bytes(range(32))


def test_a_ring_is_read_if_its_owner_alone_may(tmp_path: Path) -> None:
    """A ring that others may read is an error with advice, and so is a ring without keys."""
    path = tmp_path / "ring"
    small_file.write_text(path, line_of(key(SECRET)))
    assert key_file.read(path) == (key(SECRET),)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=r"the key ring \(mode 0640\); run `chmod 600` on it, and change the keys"):
        key_file.read(path)
    small_file.write_text(path, "")
    with pytest.raises(ConfigError, match="file has no key"):
        key_file.read(path)


def test_without_the_library_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with a key ring and without the extra does not start."""
    monkeypatch.delitem(sys.modules, "gossipkv.gossip.packets.sealing", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(LocalError, match=r"pip install 'gossipkv\[secure\]'"):
        key_file.sealing([key(SECRET)], bytes(16))
