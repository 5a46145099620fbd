"""Slow tests of Redis' protocol; the fast ones are in `test_redis.py`."""

from __future__ import annotations

import shutil
import socket
import subprocess

import pytest

from gossipkv.address import Address
from tests.load import Load, RedisDialect, Traffic

RECORDS = [(b"key-1", b"value"), (b"key-2", b""), (b"key-3", None), (b"key-4", b"$-1\r\n")]


def bulk(value: bytes | None) -> bytes:
    return b"$-1\r\n" if value is None else b"$%d\r\n%b\r\n" % (len(value), value)


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_a_redis_server_is_understood() -> None:
    """Answers of a real redis-server to GET and MGET are right in the chosen database."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["redis-server", "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert any("eady to accept connections" in line for line in server.stdout)
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n")
                for key, value in RECORDS:
                    if value is not None:
                        connection.sendall(b"*3\r\n$3\r\nSET\r\n" + bulk(key) + bulk(value))
                connection.sendall(b"*1\r\n$4\r\nPING\r\n")
                said = b""
                while b"+PONG" not in said:
                    said += connection.recv(1 << 16)
            for batch in (1, 10):
                load = Load(connections=2, in_flight=3, batch=batch, duration_s=None, requests=100)
                with Traffic(Address("127.0.0.1", port), RedisDialect(RECORDS, database=3), load) as traffic:
                    outcome = traffic.run(requests=100)
                assert (outcome.is_clean, outcome.requests) == (True, 100)
        finally:
            server.kill()
