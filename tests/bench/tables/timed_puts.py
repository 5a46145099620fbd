"""`python -m tests.bench.tables.timed_puts TABLE PREFIX SECONDS ADDRESS ...`: writers that say how long each put took.

Two to a node, one put in flight each, at a majority; the microseconds of each on one line, as JSON.  Then every record
is read at every node, from its own copy, until all are there.  It runs where the nodes are: in a network of their own.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, perf_counter

from gossipkv.client import blocking
from tests.bench.processes import wait_for

WRITERS = 2  # At each node.


def write(table: str, prefix: str, seconds: float, address: str) -> tuple[list[float], dict[bytes, bytes]]:
    """Put one record after the other; how long each took, and what was written.  Raises GossipKVError."""
    took_us: list[float] = []
    written: dict[bytes, bytes] = {}
    end_s = monotonic() + seconds
    with blocking.connect(address) as client:
        while monotonic() < end_s:
            key, value = f"{prefix}-{len(written)}".encode(), f"{prefix}-{len(written)}".encode() * 8
            begin_s = perf_counter()
            client.table(table).put(key, value)
            took_us.append((perf_counter() - begin_s) * 1e6)
            written[key] = value
    return took_us, written


def has_all(address: str, table: str, written: dict[bytes, bytes]) -> bool:
    """Whether a node's own copies have what was written."""
    with blocking.connect(address) as client:
        told = client.call("get_many", table, [*written], {"local": True})
    return isinstance(told, list) and told[0] == [*written.values()]


def main(table: str, prefix: str, seconds: str, *addresses: str) -> None:
    """Write, tell, and check."""
    with ThreadPoolExecutor() as threads:
        doing = [
            threads.submit(write, table, f"{prefix}-{writer}-{address}", float(seconds), address)
            for address in addresses
            for writer in range(WRITERS)
        ]
        done = [one.result() for one in doing]
    for address in addresses:
        for _, written in done:
            wait_for(lambda address=address, written=written: has_all(address, table, written), "all that was put")
    print(json.dumps([us for took_us, _ in done for us in took_us]))


if __name__ == "__main__":
    main(*sys.argv[1:])
