"""Tables by HTTP through real nodes, of which one holds none of the table: pipelines, headers, and event streams."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import time
from base64 import b64decode
from contextlib import ExitStack, closing, contextmanager

import msgpack
import pytest

from gossipkv.client import blocking
from gossipkv.http.changes import WAIT_MS
from gossipkv.launcher import Cluster
from tests.ci.cluster.node_process import PATIENCE_S
from tests.ci.cluster.table_nodes import Nodes, until

MAX_FEEDS = 4
EVENTS = "Accept: text/event-stream"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three nodes, and a table of one partition with replicas on two of them."""
    settings = {"max_feeds": str(MAX_FEEDS), "drain_timeout": "1m", "proxy_timeout": "30s"}
    with Cluster(tmp_path_factory.mktemp("http"), nodes=3, http=True, settings=settings) as cluster:
        with Nodes(cluster) as nodes:
            nodes.all_alive((1, 2, 3))
            nodes.ask(1, "create_table", "t", {"kind": "hash", "partitions": 1, "replication": 2})
        wait_for_table(cluster)
        yield cluster


def wait_for_table(cluster):
    """Return when each node and its gateway write to the table."""
    with Nodes(cluster) as nodes:
        for index in (1, 2, 3):
            until(lambda index=index: nodes.ask(index, "put", "t", b"seed", b""), bool)
            until(lambda index=index: ask_alone(cluster.node(index), "PUT", "/t/seed?level=all")[0], {204}.__contains__)


def dial(node):
    host, port = node.http.split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def request(method, path, body=b"", *headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, f"Content-Length: {len(body)}"]
    lines = lines if body or method in {"PUT", "POST"} else lines[:-1]
    return "\r\n".join([*lines, "", ""]).encode() + body


def ask_alone(node, method, path):
    with closing(dial(node)) as connection:
        connection.sendall(request(method, path))
        return answers(connection, [method])[0]


def answers(connection, methods):
    """Return status and body of each answer."""
    told = []
    with connection.makefile("rb") as stream:
        for method in methods:
            answer = http.client.HTTPResponse(SharedFile(stream), method=method)
            answer.begin()
            told.append((answer.status, answer.read()))
    return told


class SharedFile:
    """A socket for `HTTPResponse`, which would read ahead with a file of its own."""

    def __init__(self, file):
        self.file = file

    def makefile(self, _mode):
        return self

    def __getattr__(self, name):
        return getattr(self.file, name)

    def close(self):
        pass


LINES = b'{"key": "%b", "value": "new"}\n'
UNSAFE = {
    "PUT": (lambda key: request("PUT", f"/t/{key}", b"new"), b"new"),
    "PUT by the gateway": (lambda key: request("PUT", f"/t/{key}?level=all", b"new"), b"new"),
    "DELETE": (lambda key: request("DELETE", f"/t/{key}"), None),
    "_mput": (lambda key: request("POST", "/t/_mput", LINES % key.encode()), b"new"),
}


@pytest.mark.parametrize("index", [1, 2, 3])
@pytest.mark.parametrize("unsafe", UNSAFE)
def test_requests_in_one_packet_see_the_write_before_them(cluster, index, unsafe):
    write, value = UNSAFE[unsafe]
    with closing(dial(cluster.node(index))) as connection:
        for number in range(20):
            key = f"{[*UNSAFE].index(unsafe)}-{index}-{number}"
            sent = [request("PUT", f"/t/{key}", b"old"), write(key), request("GET", f"/t/{key}")]
            sent += [request("POST", "/t/_mget", b'"%b"' % key.encode())] if number % 4 == 0 else []
            connection.sendall(b"".join(sent))
            _, done, read, *many = answers(connection, ["PUT", "PUT", "GET", "POST"][: len(sent)])
            assert done[0] == 204
            assert read == ((404, b"t has no such key\n") if value is None else (200, value))
            for status, body in many:
                assert (status, json.loads(body)["value"]) == (200, value and value.decode())
        connection.sendall(request("GET", "/t/late") + request("PUT", "/t/late", b"new") + request("DELETE", "/t/late"))
        assert [status for status, _ in answers(connection, ["GET", "PUT", "DELETE"])] == [404, 204, 204]


@pytest.mark.parametrize("index", [1, 2, 3])
def test_curl_is_told_what_a_key_of_a_table_has(cluster, index):
    """The loop and the gateway, which answers a request with a condition on a match, give the same tag."""
    node = f"http://{cluster.node(index).http}"

    def curl(path, *options):
        command = ["curl", "-s", "-w", "%{http_code}", *options, f"{node}{path}"]
        done = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S)
        return done.stdout.decode()

    assert curl("/t/pears", "-X", "PUT", "-d", "two pears") == "204"
    (tag,) = re.findall(r"ETag: (.*)\r", curl("/t/pears", "-i"))
    assert curl("/t/pears", "-H", f"If-None-Match: {tag}") == "304"
    assert curl("/t/pears", "-H", f"If-Match: {tag}") == "two pears200"
    assert curl("/t/pears", "-r", "4-") == "pears206"
    assert curl("/t/pears", "-r", "4-", "-H", f"If-Range: {tag}") == "pears206"
    assert "Allow: GET, HEAD, PUT, DELETE, OPTIONS\r" in curl("/t/pears", "-i", "-X", "OPTIONS")
    assert "Allow: GET, HEAD, PUT, DELETE, OPTIONS\r" in curl("/t/pears", "-i", "-X", "PATCH")


class Events:
    """The events that `curl -N` writes."""

    def __init__(self, node, query="", *headers):
        headers = [part for header in (EVENTS, *headers) for part in ("-H", header)]
        command = ["curl", "-s", "-N", "-i", *headers, f"http://{node.http}/t/{query}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.lines = []

    def until(self, pattern):
        """Return the first line that matches."""
        while not re.search(pattern, line := self.process.stdout.readline().decode()):
            assert line, self.lines
            self.lines.append(line)
        self.lines.append(line)
        return line

    def last_id(self):
        return [line[4:].strip() for line in self.lines if line.startswith("id: ")][-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.mark.parametrize("index", [1, 2, 3])
def test_curl_gets_each_event_as_it_comes(cluster, index):
    """The head comes before any change, and a change long before the end of a poll."""
    with blocking.connect(cluster.node(1).address) as client, Events(cluster.node(index)) as events:
        events.until("^id: ")
        assert events.lines[0] == "HTTP/1.1 200 OK\r\n"
        took_s = []
        for number in range(10):
            client.table("t").put(f"event-{number}", b"%d" % number)
            began = time.monotonic()
            events.until(f'"event-{number}"')
            took_s.append(time.monotonic() - began)
        assert sorted(took_s)[5] < WAIT_MS / 2000, took_s


@contextmanager
def streams(node, count):
    """Open streams at a node as soon as it takes them."""

    def open_one():
        connection = stack.enter_context(closing(dial(node)))
        connection.sendall(request("GET", "/t/", b"", EVENTS))
        return connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")

    with ExitStack() as stack:
        for _ in range(count):
            until(open_one, bool)
        yield


def feeds_fit(node, count):
    """Return True if a node has room for so many further feeds at once."""
    with blocking.connect(node.address) as client:
        _, token = client.call("changes", "t", {"wait_ms": 0})
    host, port = node.address.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        for number in range(count):
            connection.sendall(msgpack.packb([0, number, "changes", ["t", {"token": token, "wait_ms": 200}]]))
        answers, errors = msgpack.Unpacker(), []
        while len(errors) < count:
            answers.feed(connection.recv(1 << 16))
            errors += [error for _, _, error, _ in answers]
    return not any(errors)


@pytest.mark.parametrize("index", [1, 3])
def test_streams_that_clients_left_free_their_places(cluster, index):
    node = cluster.node(index)
    for _ in range(3):
        with streams(node, MAX_FEEDS // 2), closing(dial(node)) as one_more:
            one_more.sendall(request("GET", "/t/", b"", EVENTS))
            assert answers(one_more, ["GET"])[0][0] == 429  # This address has its half of the places.
        until(lambda: feeds_fit(node, MAX_FEEDS), bool)


def test_a_stream_goes_on_at_another_node_when_its_own_ends(cluster):
    """The stream of a node that ends is ended at once, with the id from which a client goes on."""
    with blocking.connect(cluster.node(1).address) as client:
        try:
            with Events(cluster.node(3)) as events:
                events.until("^id: ")
                client.table("t").put("before", b"1")
                events.until('"before"')
                began = time.monotonic()
                cluster.send(3, signal.SIGTERM)
                rest, _ = events.process.communicate(timeout=PATIENCE_S)
            assert (events.process.returncode, time.monotonic() - began < 20) == (0, True)
            events.lines += rest.decode().splitlines()
            assert b64decode(events.last_id(), validate=True)
        finally:
            cluster.wait_ended(3)
            cluster.start(3)
            wait_for_table(cluster)
        client.table("t").put("after", b"2")
        with Events(cluster.node(1), "", f"Last-Event-ID: {events.last_id()}") as later:
            later.until('"after"')
            assert not [line for line in later.lines if '"before"' in line]
