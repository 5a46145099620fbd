"""What a request stores to lies in the memory of its own pump: no cache line goes from one core to another for it.

The extensions are those of the leg `races`, which call a function before each access; here it is the recorder's and
not ThreadSanitizer's.  All is real but for that: pumps with threads of their own, sockets, a published file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gossipkv.serving import _serving

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LIBRARY = "libtsan.so.2"  # As whom the extensions look for it.
TIMEOUT_S = 600

# Lines that pumps share by design, by the extension that stores to them, and why.
SHARED_BY_DESIGN = {
    "_mapped_file": 1,  # The epoch: one number for all files, which each pump sets once in 10 ms to what it is anyway.
}

pytestmark = pytest.mark.skipif(
    LIBRARY.encode() not in Path(_serving.__file__).read_bytes(), reason="only a build for ThreadSanitizer tells"
)


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is loaded in the place of ThreadSanitizer's library."""
    made = tmp_path_factory.mktemp("recorder") / LIBRARY
    flags = ["-O2", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run(["gcc", *flags, str(HERE / "recorder.c"), "-o", str(made)], check=True)
    return made


def asked(recorder: Path, pumps: int, method: str) -> tuple[list[int], Counter[str]]:
    """How many lines each pump has stored to; and how many of those are several pumps', by who stored there."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.nightly.stores.asking", str(pumps), method],
        cwd=ROOT,
        env=os.environ | {"LD_PRELOAD": str(recorder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return told["lines"], Counter(
        "/".join(sorted({place.partition("+")[0] for _, place in line})) for line in told["shared"]
    )


@pytest.mark.parametrize("pumps", [2, 4, 8])
def test_each_store_of_a_get_lies_in_its_own_pump(recorder: Path, pumps: int) -> None:
    """But for what pumps share by design."""
    lines, shared = asked(recorder, pumps, "get")
    assert len(lines) == pumps
    assert min(lines) > 20
    assert shared <= Counter(SHARED_BY_DESIGN)


def test_a_store_to_what_is_shared_is_seen(recorder: Path) -> None:
    """The loop group counts the answers of Python, and each is given under the lock of its loop."""
    _, shared = asked(recorder, 4, "named")
    assert {"_connections", "_turn"} <= shared.keys()
