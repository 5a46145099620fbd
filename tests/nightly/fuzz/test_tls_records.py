"""FUZZ_FRAMES wrong TLS records and handshakes: their connections end, and a bystander is answered."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.nightly.fuzz.frames import FRAMES, numbers
from tests.nightly.fuzz.tls_records import WRONG, Fuzzed
from tests.unit.serving.test_tls_cut_slow import allocated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(7200)

COUNT = min(FRAMES, 200_000) // 2  # A client takes some 3 ms and has about two wrong records.
SEED = 36_000_001
AT_ONCE = 20
WARM = 500  # After so many clients the loop has allocated its caches.
KEPT_BYTES = 100 << 10  # A limit for any number of clients: a connection takes some 10 KiB.


@pytest.fixture
def fuzzed(tmp_path: Path) -> Iterator[Fuzzed]:
    fuzzed = Fuzzed(tmp_path)
    yield fuzzed
    fuzzed.served.close()


def test_mutated_records(fuzzed: Fuzzed, record_property: Callable[[str, str], None]) -> None:
    """The process lives; no connection, descriptor or memory is lost."""
    before = descriptors = 0
    drawn = [*numbers(COUNT)]
    for block in (drawn[at : at + AT_ONCE] for at in range(0, len(drawn), AT_ONCE)):
        try:
            fuzzed.meet([random.Random(SEED + number) for number in block])
            assert fuzzed.is_well()
        except BaseException as error:
            error.add_note(f"replay with FUZZ_NUMBER={block[0]}, or one of the next {len(block) - 1}")
            raise
        if block[0] == WARM:
            before, descriptors = allocated(), len(os.listdir("/proc/self/fd"))
    assert fuzzed.is_well()
    counters = fuzzed.served.core.counters()
    shaken = f"{counters['tls_handshakes']:,} handshakes, {counters['tls_resumed']:,} by a ticket"
    record_property("measured", f"{len(drawn):,} clients: {dict(fuzzed.seen)}, {shaken}")
    if len(drawn) > WARM:
        assert fuzzed.seen[WRONG] > 1.5 * len(drawn)
        assert len(os.listdir("/proc/self/fd")) == descriptors
        assert allocated() - before < KEPT_BYTES
        assert min(counters[name] for name in ("tls_handshakes", "tls_resumed", "closed_handshake", "gets")) > 100
