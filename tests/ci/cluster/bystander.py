"""Somebody who reads from a node all the while: `python -m tests.ci.cluster.bystander ADDRESS PROCESS`.

A read every 2 ms, each answer checked, timed from when it was due: a stall makes all the reads late that were due
meanwhile.  For each line on standard input one of JSON: how late each answer was since the last one, and the time that
has passed, both in milliseconds of `UnhinderedClock`.
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
    """Milliseconds that do not pass while this process, or that one, is ready to run and waits for a processor.

    So an answer takes as long on a busy machine as on an idle one; and a node that works for others meanwhile, that
    sleeps, or that is stopped, is as late as ever.  Of each process its main thread counts.
    """

    def __init__(self, process: int) -> None:
        self._files = [os.open(f"/proc/{each}/schedstat", os.O_RDONLY) for each in (os.getpid(), process)]

    def now_ms(self) -> float:
        waited_ns = sum(int(os.pread(file, 100, 0).split()[1]) for file in self._files)
        return (time.perf_counter_ns() - waited_ns) / 1e6


def exchanges() -> list[tuple[bytes, bytes]]:
    """Requests for RECORDS of `hostile_peers`, and their answers."""
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
                due_ms = clock.now_ms()  # That it woke late is the machine's doing, and not the node's.
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
