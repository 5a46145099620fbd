"""Each byte of a store is changed once, and no answer is wrong."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from tests.unit.storage.engine.damage import MANIFEST, REFUSED, RIGHT
from tests.unit.storage.engine.test_store_damage import flipped, the_store

STRIDE = int(os.environ.get("CRASH_STRIDE", "25"))


def every_byte(path, content):
    """Return the offsets to try, with fewer among zeros."""
    chance = random.Random(path)
    said = [at for at, byte in enumerate(content) if byte]
    unsaid = [at for at, byte in enumerate(content) if not byte]
    thick, thin = (1, 1) if STRIDE == 1 else (STRIDE * 2, STRIDE * 8)
    return sorted(chance.sample(said, len(said) // thick) + chance.sample(unsaid, len(unsaid) // thin))


def zeroed(store, path, at, content):
    return store.overwritten(path, at, b"\0")


def cut(store, path, at, content):
    return store.changed({path: content[:at]})


@pytest.mark.parametrize("harm", [flipped, zeroed, cut])
def test_every_byte_of_every_file(harm, record_property):
    """Each change is refused or harmless: always refused in the manifest, always harmless in log kept for readers."""
    store, outcomes = the_store(), {}
    for path, content in store.contents.items():
        if path.endswith("LOCK"):
            continue
        counted = outcomes[path] = Counter()
        for at in every_byte(path, content):
            if harm is not zeroed or content[at]:
                counted[store.outcome(harm(store, path, at, content))] += 1
        assert path != MANIFEST or not counted[RIGHT]
        if path in store.kept:
            assert not counted[REFUSED], f"{path} is there for readers of the log alone"
        else:
            assert harm is zeroed or counted[REFUSED], f"nothing in {path} matters"
    total = sum(outcomes.values(), Counter())
    record_property("measured", f"{total[REFUSED]} refused, {total[RIGHT]} right")
