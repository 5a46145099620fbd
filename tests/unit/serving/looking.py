"""A client process that asks all pumps of a node in turn, and notes every older version after a newer one.

Usage: python -m tests.unit.serving.looking PORT; prints a line once all connections have been answered, and, at the end
of its input, `[looks, [faults, ...]]`.
"""

from __future__ import annotations

import json
import select
import socket
import sys

import msgpack

from gossipkv.wire import rpc

CONNECTIONS = 6
ASKED = rpc.request(0, "get", ["db", b"k"]) + rpc.request(1, "get_many", ["db", [b"k"] * 50])


def main(port: int) -> None:
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    seen, looks = "", 0
    wrong: list[object] = []
    while not select.select([sys.stdin], [], [], 0)[0]:
        for at, connection in enumerate(connections):
            connection.sendall(ASKED)
            unpacker, answers = msgpack.Unpacker(), []
            while len(answers) < 2:
                unpacker.feed(connection.recv(1 << 16))
                answers.extend(unpacker)
            (_, _, _, (value, version)), (_, _, _, (values, of)) = sorted(answers)
            if version < seen or of < seen or value != version.encode() or {*values} != {of.encode()}:
                wrong.append([at, seen, version, of])
            seen, looks = max(seen, version, of), looks + 1
        if looks == CONNECTIONS:
            sys.stdout.write("begun\n")
            sys.stdout.flush()
    sys.stdout.write(json.dumps([looks, wrong[:10]]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
