"""Real nodes that stop amid a forwarded answer and keep the connection: the next owner is asked."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from gossipkv.errors import NotServed
from gossipkv.keyspace.partitioner import partition
from tests.ci.cluster.test_datasets import (
    PARTITIONS,
    PATIENCE_S,
    TOGETHER,
    connect,
    counters,
    running,
    wait_for,
    wait_whole,
)
from tests.preload import preload

KEYS = [b"key%d" % number for number in range(40)]
RECORDS = {key: key * 50_000 for key in KEYS}
SETTINGS = TOGETHER | {"frame_timeout": "10m", "output_timeout": "10m"}  # Only the next owner ends a wait.


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a library is loaded before libc")
def test_an_owner_that_stalls_amid_an_answer_fails_no_read(tmp_path, monkeypatch):
    """Whichever owner stalls, and for each kind of read, the other owner answers."""
    stall, place = tmp_path / "stall", tmp_path / "source/geo/v1"
    monkeypatch.setenv("LD_PRELOAD", str(preload(Path(__file__).with_name("stalling.c"), tmp_path)))
    monkeypatch.setenv("STALLING", str(stall))
    place.mkdir(parents=True)
    for number in range(PARTITIONS):
        held = [record for record in RECORDS.items() if partition("sequins", record[0], PARTITIONS) == number]
        (place / f"part-{number:05}.tsv").write_bytes(b"".join(b"%b\t%b\n" % record for record in held))
    with running(tmp_path, 3, 2, SETTINGS) as cluster:
        wait_for(cluster, "v1")
        wait_whole(cluster, "v1")
        asked = cluster.status()[0].address
        with connect(asked) as client:
            data = client.dataset("geo")
            for number, key in enumerate([key for key in KEYS if is_elsewhere(client, key)][:6]):
                stall.touch()
                assert (data.get(key) if number % 2 else data.get_many([key])[0]) == RECORDS[key]
                stall.with_suffix(".met").unlink()  # An owner has stalled; the rest of its answer comes late.
                until(lambda late=number + 1: counters(asked)["forward_answers_late"] >= late)
        counted = counters(asked)
    assert counted["forward_silences"] > 0
    assert counted["forward_failed"] == counted["closed_frame_timeout"] == 0


def until(holds):
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def is_elsewhere(client, key):
    """True if the node must forward the read."""
    try:
        client.call("get", "geo", key, {"local": True})
    except NotServed:
        return True
    return False
