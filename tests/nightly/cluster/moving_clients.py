"""Traffic to a table that moves; a separate program, so that it can run at the switch of a network.

    python moving_clients.py '{"addresses": {name: address}, "seed": 1}'

The program writes and reads until a line on its standard input gives the nodes of each partition as JSON, `[[name,
...], ...]`. Then it prints, as JSON, the violations, the failed reads (`[began_s, ended_s, error]`), and the counts of
reads and writes.
"""

from __future__ import annotations

import json
import sys

from tests.ci.cluster.table_moves import Traffic


def main(told: str) -> None:
    order = json.loads(told)
    with Traffic(order["addresses"], seed=order["seed"]) as traffic:
        hosts = json.loads(sys.stdin.readline())
    reads, writes = traffic.failures()
    answer = {
        "faults": traffic.faults(dict(enumerate(hosts))),
        "failed_reads": reads,
        "failed_writes": len(writes),
        "counts": traffic.counts(),
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
