"""Slow tests of key files; the fast ones are in `test_key_file.py`."""

from __future__ import annotations

import subprocess
import sys


def test_the_library_is_loaded_only_for_a_ring() -> None:
    """Neither the envelope nor the reading of a ring loads the library."""
    program = (
        "import sys, gossipkv.gossip.packets.envelope\n"
        "from gossipkv.gossip.packets import key_ring as r\n"
        "from gossipkv.gossip.shell import key_file as k\n"
        "assert 'cryptography' not in sys.modules\n"
        "k.sealing([r.key(bytes(32))], bytes(16))\n"
        "assert 'cryptography' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
