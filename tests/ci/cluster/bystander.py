"""A client that reads from a node without pause: `python -m tests.ci.cluster.bystander ADDRESS PROCESS`.

The client reads every 2 ms, checks each answer and times it from when the read was due: a stall delays all reads that
were due meanwhile. Each line on standard input is answered by a line of JSON: the delays since the last line and the
elapsed time, both in milliseconds of `UnhinderedClock`.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import sys
import time

from gossipkv.processes.program import say
from gossipkv.wire import rpc

PERIOD_MS = 2


class UnhinderedClock:
    """Milliseconds that do not pass while this process or the node waits for a processor.

    So an answer takes as long on a busy machine as on an idle one. A node that works for other clients, sleeps or is
    stopped is still late. Only the main thread of each process counts.
    """

    def __init__(self, process: int) -> None:
        self._files = [os.open(f"/proc/{each}/schedstat", os.O_RDONLY) for each in (os.getpid(), process)]

    def now_ms(self) -> float:
        waited_ns = sum(int(os.pread(file, 100, 0).split()[1]) for file in self._files)
        return (time.perf_counter_ns() - waited_ns) / 1e6


def exchanges() -> list[tuple[bytes, bytes]]:
    key, value = "key%04d", b"value%d"
    found = []
    for n in range(1000):
        found.append((rpc.request(n, "get", ["geo", key % n]), rpc.response(n, [value % n, "1"])))
        if n % 10 == 5:
            batch = rpc.request(n, "get_many", ["geo", [key % n, b"none", key % (n // 2)]])
            found.append((batch, rpc.response(n, [[value % n, None, value % (n // 2)], "1"])))
        if n % 50 == 25:
            page = rpc.request(n, "scan", ["geo", {"prefix": key % n}])
            found.append((page, rpc.response(n, [[[b"key%04d" % n, value % n]], None, "1"])))
    return found


def main(address: str, process: int) -> None:
    gc.disable()
    host, _, port = address.rpartition(":")
    node = socket.create_connection((host, int(port)), timeout=60, source_address=("127.0.0.99", 0))
    node.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    asked, clock = exchanges(), UnhinderedClock(process)
    say(b"reads")
    late_ms: list[float] = []
    began_ms = due_ms = clock.now_ms()
    while True:
        for request, expected in asked:
            if (early_ms := due_ms - clock.now_ms()) > 0:
                time.sleep(early_ms / 1000)
                due_ms = clock.now_ms()  # The machine woke this process late, not the node.
            node.sendall(request)
            answer = node.recv(65536)
            while len(answer) < len(expected):
                more = node.recv(65536)
                assert more, "the node ended the connection"
                answer += more
            assert answer == expected, (request, answer, expected)
            late_ms.append(clock.now_ms() - due_ms)
            due_ms += PERIOD_MS
            if select.select([sys.stdin], [], [], 0)[0]:
                if not sys.stdin.readline():
                    return
                say(json.dumps([late_ms, clock.now_ms() - began_ms]).encode())
                late_ms = []
                began_ms = due_ms = clock.now_ms()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
