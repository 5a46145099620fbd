"""Traffic to a table that moves, a program of its own, so that it can run at the switch of a network.

    python moving_clients.py '{"addresses": {name: address}, "seed": 1}'

It writes and reads until a line comes on its standard input, the nodes of each partition as JSON, `[[name, ...], ...]`;
then it says, as JSON, what must not be, which reads failed (`[began_s, ended_s, error]`), and how many of each there
were.
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
