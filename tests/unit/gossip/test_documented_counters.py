"""The reference lists exactly the counters of the code."""

import re
from pathlib import Path

from gossipkv import gossip
from gossipkv.placement import shard_claim
from tests.documented import fields_of

SOURCES = [*Path(gossip.__file__).parent.rglob("*.py"), Path(shard_claim.__file__)]

# Counters that the code does not increment by name.
FOUND_OUT = {"lost_by_system"}


def counted():
    """Return every counter name of the code; a composed name ends in `…`."""
    source = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    plain = set(re.findall(r'counters\["(\w+)"\] \+=', source))
    return plain | {f"{prefix}…" for prefix in re.findall(r'counters\[f"(\w+)\{[^"]*"\] \+=', source)} | FOUND_OUT


def test_the_reference_lists_every_counter():
    assert len(counted()) > 20
    assert counted() == fields_of("gossip counters")
