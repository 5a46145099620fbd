"""A request stores only to memory of its own pump, so no cache line moves between cores for it.

The extensions come from the leg `races` and call a function before each access; here this is the recorder's function
instead of ThreadSanitizer's. All else is real: pumps with their own threads, sockets, a published file.
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
LIBRARY = "libtsan.so.2"  # The extensions look for the library under this name.
TIMEOUT_S = 600

# The numbers of lines that pumps share by design, by storing extension, with the reason.
SHARED_BY_DESIGN = {
    # The epoch is one number for all files, which each pump sets once in 10 ms, usually to the same value.
    "_storage": 1,
}

only_for_races = pytest.mark.skipif(
    LIBRARY.encode() not in Path(_serving.__file__).read_bytes(), reason="only a build for ThreadSanitizer tells"
)
pytestmark = only_for_races


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library that replaces ThreadSanitizer's."""
    made = tmp_path_factory.mktemp("recorder") / LIBRARY
    flags = ["-O2", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run(["gcc", *flags, str(HERE / "recorder.c"), "-o", str(made)], check=True)
    return made


def asked(recorder: Path, pumps: int, method: str) -> tuple[list[int], Counter[str]]:
    """Return how many lines each pump has stored to, and the lines of several pumps by storing extension."""
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
    """The only shared lines are those that pumps share by design."""
    lines, shared = asked(recorder, pumps, "get")
    assert len(lines) == pumps
    assert min(lines) > 20
    assert shared <= Counter(SHARED_BY_DESIGN)


def test_a_store_to_what_is_shared_is_seen(recorder: Path) -> None:
    """The loop group counts the answers of Python, and each is given under the lock of its loop."""
    _, shared = asked(recorder, 4, "named")
    assert "_serving" in shared
