"""Tests over real processes, sockets, threads or time; `test_store_damage.py` has the others."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from gossipkv.errors import DirectoryInUse
from tests.conformance.store import FIRST, begun
from tests.oracle.store import VALUE
from tests.unit.storage.engine.places import RealPlace


def test_two_that_have_it_open(tmp_path):
    """The second opening is refused, in the same process and in another, and does no harm."""
    place = RealPlace(tmp_path)
    witness = begun(place)
    with pytest.raises(DirectoryInUse, match=re.escape(str(place.directory))):
        place.open()
    program = "import sys; from tests.world.blocking_store import Store; Store.open(sys.argv[1])"
    ran = subprocess.run([sys.executable, "-c", program, place.directory], capture_output=True, text=True, check=False)
    assert "DirectoryInUse" in ran.stderr
    witness.write((VALUE, FIRST, b"still", b"here"))
    witness.close()
    witness.open()
    witness.close()
