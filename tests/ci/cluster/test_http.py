"""HTTP with real processes: a node's gateway lives and dies with it and never ends it; `gossipkv http` runs alone."""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from gossipkv.client import blocking
from gossipkv.keyspace.partitioner import partition
from gossipkv.launcher import Cluster
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, wait_for
from tests.ports import neighbouring_ports, quiet_ports
from tests.unit.http.sequins_table import lines

BIG = b"y" * (12 << 20)
IDLE = 1000
# A process with Trio, h11 and the client has some 45 MB; 1,000 connections had 20 KiB each.
MAX_PEAK_BYTES = 200 << 20
# With so many partitions, shard ids 1 and 2, and one replica, `1881/boy` and `foo` are with the first node, `away` with
# the second.
PARTITIONS = 11
MADE = "Mon, 01 Aug 2016 11:56:27 GMT"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Write a database of a usual name and a database that has the name of a gateway path."""
    root = tmp_path_factory.mktemp("source")
    for name in ("geo", "metrics"):
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "part-00000.tsv").write_bytes(b"paris\tFrance\na/../b\tdots\nbig\t" + BIG + b"\n")
    return root


@contextmanager
def node_with_http(place, source, *options):
    """Start a node that serves `geo`; yield the node and the address of its gateway."""
    with NodeProcess(place, "--http-listen", "127.0.0.1:0", *options, source=source) as node:
        node.ready()
        wait_for(node.address, "geo", "1")
        yield node, gateways(node)[-1][0]


def until(true, what):
    give_up_s = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < give_up_s, what()
        time.sleep(0.02)
    return found


def gateways(node, count=1):
    """Return the address and process of each gateway that the node has had, once there are `count`."""
    pattern = re.compile(r"address=(\S+) process=(\d+)")
    found = until(
        lambda: len(told := [line for line in node.said().splitlines() if "] http " in line]) >= count and told,
        node.said,
    )
    return [(match[1], int(match[2])) for match in map(pattern.search, found)]


def lives(process):
    """False also for a process that only waits to be reaped."""
    try:
        with open(f"/proc/{process}/stat", "rb") as told:
            return told.read().rpartition(b") ")[2][:1] not in {b"Z", b"X"}
    except OSError:
        return False


def get(address, path, headers=None):
    request = urllib.request.Request(f"http://{address}{path}", headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def dial(address):
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def read_all(connection):
    parts = []
    while part := connection.recv(1 << 20):
        parts.append(part)
    return b"".join(parts)


def test_curl_and_wget(tmp_path, source):
    """Both programs get the right status, headers and bytes, also for keys that look like paths."""
    with node_with_http(tmp_path, source) as (_, address):
        out = tmp_path / "out"
        told = subprocess.run(
            ["curl", "-sS", "--path-as-is", "-D", "-", "-o", str(out), f"http://{address}/geo/a/../b"],
            capture_output=True, check=True, timeout=PATIENCE_S,
        ).stdout  # fmt: skip
        assert told.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"X-Sequins-Version: 1\r\n" in told
        assert out.read_bytes() == b"dots"
        ranged = subprocess.run(
            ["curl", "-sS", "-r", "5-14", f"http://{address}/geo/big"],
            capture_output=True, check=True, timeout=PATIENCE_S,
        ).stdout  # fmt: skip
        assert ranged == b"y" * 10
        if shutil.which("wget") is not None:
            subprocess.run(["wget", "-q", "-O", str(out), f"http://{address}/geo/big"], check=True, timeout=PATIENCE_S)
            assert out.read_bytes() == BIG
        status, headers, _ = get(address, "/geo/none")
        assert (status, headers["X-Sequins-Version"]) == (404, "1")
        status, headers, _ = get(address, "/none/none")
        assert (status, headers.get("X-Sequins-Version"), headers["X-GossipKV-Error"]) == (
            404,
            None,
            "UNKNOWN_DATABASE",
        )


def test_the_gateway_dies_with_its_node_however_that_ends(tmp_path, source):
    """The kernel kills the gateway with its node, even if the gateway is stopped."""
    for number in (signal.SIGKILL, signal.SIGTERM):
        place = tmp_path / number.name
        place.mkdir()
        with node_with_http(place, source) as (node, address):
            ((_, gateway),) = gateways(node)
            assert get(address, "/geo/paris")[2] == b"France"
            if number == signal.SIGKILL:
                os.kill(gateway, signal.SIGSTOP)
            node.stop(number)
            until(lambda gateway=gateway: not lives(gateway), lambda: "it lives")
            with pytest.raises(ConnectionRefusedError):
                dial(address)


def test_a_node_that_is_held_up(tmp_path):
    """Waiting requests get status 504; the gateway and its connections go on with the node."""
    with NodeProcess(tmp_path, "--http-listen", "127.0.0.1:0") as node:
        node.ready()
        address, process = gateways(node)[0]
        waits, goes_on = (http.client.HTTPConnection(address, timeout=PATIENCE_S) for _ in range(2))

        def status(connection):
            # The gateway answers this request.
            connection.request("GET", "/none/key", headers={"Authorization": "Bearer x"})
            with connection.getresponse() as response:
                response.read()
                return response.status

        assert [status(connection) for connection in (waits, goes_on)] == [404, 404]
        node.process.send_signal(signal.SIGSTOP)
        assert status(waits) == 504
        node.process.send_signal(signal.SIGCONT)
        until(lambda: [status(connection) for connection in (waits, goes_on)] == [404, 404], node.said)
        assert gateways(node) == [(address, process)]
        for connection in (waits, goes_on):
            connection.close()
        assert node.stop() == 0


def test_a_port_in_use_ends_the_start(tmp_path, source):
    """The error is one line with the address and the setting to change, before the data directory is made."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        where = f"127.0.0.1:{other.getsockname()[1]}"
        with NodeProcess(tmp_path, "--http-listen", where, source=source) as node:
            assert node.process.wait(PATIENCE_S) == 3
        said = node.said().splitlines()
    assert said == [
        f"gossipkv: cannot listen on {where}: Address already in use; choose another with --http-listen"
    ]  # fmt: skip
    assert not (tmp_path / "data").exists()


def test_what_is_in_flight_when_the_node_ends_is_answered(tmp_path, source):
    """A slow reader gets all of a large answer over HTTP; idle connections and newcomers are closed."""
    # A busy machine may be slow: another test shows that connections are cut after `drain_timeout`.
    with node_with_http(tmp_path, source, "--drain-timeout", "1h", "--output-timeout", "1h") as (node, address):
        with dial(address) as slow, dial(address) as idle:
            idle.sendall(b"GET /geo/paris HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert idle.recv(1 << 16).endswith(b"France")
            slow.sendall(b"GET /geo/big HTTP/1.1\r\nHost: localhost\r\n\r\n")
            begun = slow.recv(1 << 10)
            node.process.send_signal(signal.SIGTERM)
            assert idle.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                dial(address)
            assert (begun + read_all(slow)).endswith(b"\r\n\r\n" + BIG)
        assert node.process.wait(PATIENCE_S) == 0
        assert "http_cut" not in node.said()
        assert "http_ended" not in node.said()


def test_types_of_values_are_read_again(tmp_path, source):
    """SIGHUP applies to the running gateway; a database hidden by a gateway path is warned about once."""
    settings = tmp_path / "gossipkv.toml"
    settings.write_text('content_type = "text/plain"\n')
    with node_with_http(tmp_path, source, "--config", str(settings)) as (node, address):
        wait_for(node.address, "metrics", "1")
        assert get(address, "/geo/paris")[1]["Content-Type"] == "text/plain"
        settings.write_text('content_type = "text/plain"\n[databases.geo]\ncontent_type = "text/x-country"\n')
        node.process.send_signal(signal.SIGHUP)
        until(lambda: get(address, "/geo/paris")[1]["Content-Type"] == "text/x-country", node.said)
        assert get(address, "/metrics/paris")[::2] == (200, b"France")
        hidden = [line for line in node.said().splitlines() if "http_hidden" in line]
        assert len(hidden) == 1
        assert "database=metrics path=/metrics" in hidden[0]


def test_a_thousand_idle_connections(tmp_path, source):
    """They cost little memory, and other connections are answered, among them 1,000 pipelined requests of one."""
    with node_with_http(tmp_path, source) as (node, address), contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            connection = stack.enter_context(dial(address))
            connection.sendall(b"GET /geo/paris HT")
        with dial(address) as pipelined:
            pipelined.sendall(b"GET /geo/paris HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
            pipelined.shutdown(socket.SHUT_WR)
            assert read_all(pipelined).count(b"France") == 1000
        ((_, gateway),) = gateways(node)
        with open(f"/proc/{gateway}/status", encoding="ascii") as told:
            peak = int(re.search(r"VmHWM:\s+(\d+) kB", told.read())[1]) << 10
        assert peak < MAX_PEAK_BYTES


class Alone:
    def __init__(self, *options):
        command = [sys.executable, "-m", "gossipkv", "http", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        assert readable
        word, self.address = self.process.stdout.readline().decode().split()
        assert word == "ready"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def test_a_gateway_alone_outlives_its_nodes(tmp_path, source):
    """The gateway starts before its node, answers 502 without a node, and answers again after a restart."""
    (port,) = quiet_ports(1)
    with Alone("--node", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0", "--content-type", "geo=text/plain") as alone:
        status, headers, body = get(alone.address, "/geo/paris")
        assert (status, headers["X-GossipKV-Error"]) == (502, "UNAVAILABLE")
        assert b"no node could be reached" in body
        for _ in range(2):
            # The last --listen counts.
            with NodeProcess(tmp_path, "--listen", f"127.0.0.1:{port}", source=source) as node:
                node.ready()
                wait_for(node.address, "geo", "1")
                until(lambda: get(alone.address, "/geo/paris")[::2] == (200, b"France"), node.said)
                assert get(alone.address, "/geo/paris")[1]["Content-Type"] == "text/plain"
                status, headers, _ = get(alone.address, "/geo/paris?proxy=true")
                assert (status, headers["X-GossipKV-Error"]) == (400, "BAD_REQUEST")
                node.stop(signal.SIGKILL)
            assert get(alone.address, "/geo/paris")[0] == 502
        alone.process.send_signal(signal.SIGTERM)
        assert alone.process.wait(PATIENCE_S) == 0


def rebound(address, path, *options):
    """Return the status for curl, to whose name service `evil.example` is this machine, and the body."""
    host, port = address.split(":")
    command = ["curl", "-s", "-w", "%{stderr}%{http_code}", "--resolve", f"evil.example:{port}:{host}", *options]
    done = subprocess.run([*command, f"http://evil.example:{port}{path}"], check=True, capture_output=True, text=True)
    return int(done.stderr), done.stdout


def test_a_page_of_another_site_reaches_no_node_without_users(tmp_path, source):
    """DNS rebinding: the page's name means this machine. Users, or the setting, allow the name."""
    with node_with_http(tmp_path, source) as (node, address):
        for options in ((), ("-T", os.devnull), ("-d", "{}")):
            for path in ("/geo/paris", "/geo/_mput", "/metrics", "/", "/static/page.css"):
                status, line = rebound(address, path, *options)
                assert (status, 'add http_hosts = "evil.example" to' in line) == (421, True), (path, options)
        assert [rebound(address, path)[0] for path in ("/livez", "/readyz", "/healthz")] == [200] * 3
        port = address.split(":")[1]
        assert get(f"localhost:{port}", "/geo/paris")[::2] == (200, b"France")
        for more, status in ((), 421), (("--http-hosts", "other, evil.example"), 200), (("--http-hosts", "*"), 200):
            with Alone("--node", node.address, "--listen", "127.0.0.1:0", *more) as alone:
                assert rebound(alone.address, "/geo/paris")[0] == status
                assert get(alone.address, "/geo/paris")[::2] == (200, b"France")
    users = tmp_path / "users"
    users.write_text('[anonymous]\nmay = ["read:*", "see"]\n')
    users.chmod(0o600)
    for options in ("--users", str(users)), ("--http-hosts", "evil.example"):
        place = tmp_path / options[0]
        place.mkdir()
        with node_with_http(place, source, *options) as (_, address):
            assert rebound(address, "/geo/paris") == (200, "France")
            assert rebound(address, "/metrics")[0] == 200


def test_gateways_share_a_port_if_they_all_say_so(tmp_path):
    """A gateway without `--share-port` is refused, with status 3 and one line."""
    (port,) = quiet_ports(1)
    where = ["--listen", f"127.0.0.1:{port}"]
    with Alone(*where, "--share-port"), Alone(*where, "--share-port"):
        done = subprocess.run(
            [sys.executable, "-m", "gossipkv", "http", *where],
            capture_output=True,
            check=False,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 3
    assert done.stderr == (
        f"gossipkv: cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --listen\n"
    )


def test_a_cluster_with_http(tmp_path, source):
    """Each node has its HTTP port in the table, and keeps the port after a kill and another `up`."""
    ports = []
    # No other test uses these ports while the nodes are down.
    for asked in ({"http_base_port": neighbouring_ports(2)[0]}, {}):
        with Cluster(tmp_path / "cluster", nodes=2, source=source, http=True, **asked) as cluster:
            ports.append([node.http for node in cluster.status()])
            for node in cluster.status():
                until(lambda node=node: get(node.http, "/geo/paris")[::2] == (200, b"France"), cluster.status)
            cluster.kill(2)
            again = cluster.start(2)
            assert again.http == ports[0][1]
            until(lambda again=again: get(again.http, "/geo/paris")[::2] == (200, b"France"), cluster.status)
    assert ports[0] == ports[1]
    assert len(set(ports[0])) == 2
    told = subprocess.run(
        [sys.executable, "-m", "gossipkv", "cluster", "status", "--json", "--data", str(tmp_path / "cluster")],
        capture_output=True, check=True, timeout=PATIENCE_S,
    ).stdout  # fmt: skip
    assert [node["http"] for node in json.loads(told)["nodes"]] == ports[0]
    with Cluster(tmp_path / "cluster", http=False) as cluster:
        assert [node.http for node in cluster.status()] == [None, None]


def publish_names(source, version, records):
    """Publish a version of `baby-names` at the source, whose newest file has the time of the page."""
    place = source / "baby-names" / f"_{version}"
    place.mkdir(parents=True)
    made_s = email.utils.parsedate_to_datetime(MADE).timestamp()
    for number in range(PARTITIONS):
        held = [key for key in records if partition("sequins", key.encode(), PARTITIONS) == number]
        part = place / f"part-{number:05}.tsv"
        part.write_text("".join(f"{key}\t{records[key]}\n" for key in held))
        os.utime(part, (made_s - number, made_s - number))
    place.rename(source / "baby-names" / version)


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory):
    """Return the HTTP addresses of `n1` and `n2`, which hold the data that Sequins' request table assumes."""
    place = tmp_path_factory.mktemp("sequins")
    # This version cannot be built, so no version of `coming` is ever ready.
    (place / "source" / "coming" / "1").mkdir(parents=True)
    (place / "source" / "coming" / "1" / "part-00000.tsv").write_text("a line without a tab\n")
    publish_names(place / "source", "1", {"1881/boy": "John", "1881/girl": "Mary", "old": "here once"})
    options = ["--replication", "1", "--time-to-converge", "1s", "--proxy-timeout", "10s"]
    with contextlib.ExitStack() as stack:
        nodes = []
        for number in ("1", "2"):
            (place / number).mkdir()
            http = ("--http-listen", "127.0.0.1:0", "--node", f"n{number}", "--shard-id", number)
            join = ("--join", nodes[0].address) if nodes else ()
            node = NodeProcess(place / number, *options, *http, *join, source=place / "source")
            nodes.append(stack.enter_context(node))
            node.ready()
        until(lambda: [share.get("n2") for share in shares(nodes, "1")] == [5, 5], nodes[1].said)
        publish_names(place / "source", "2", {"1881/boy": "Johnny", "away": "from n2", "ten": "0123456789"})
        for node in nodes:
            with blocking.connect(node.address, timeout_ms=PATIENCE_S * 1000) as client:
                client.call("refresh")
        until(lambda: shares(nodes, "2") == [{"n1": 6, "n2": 5}] * 2, lambda: str(shares(nodes, "2")))
        yield [gateways(node)[-1][0] for node in nodes]


def shares(nodes, version):
    """Return each node's view of the owners of `version` and their partition counts, if the node answers from it."""
    told = []
    for node in nodes:
        with blocking.connect(node.address, timeout_ms=PATIENCE_S * 1000) as client:
            status = client.status("baby-names").get("baby-names", {"active": None})
            if status["active"] == version:
                owners = status["versions"][version]["owners"]
                told.append({owner["node"]: owner["ready"]["count"] for owner in owners})
    return told


def by_client(address, line):
    """Send a line of the table from Python; return the status, headers by lower-case names, and body."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request(line.method, line.target)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def by_curl(address, line):
    """Send a line of the table by curl, with the target unchanged."""
    method = ["--head"] if line.method == "HEAD" else ["-X", line.method]
    told = run("curl", "-sS", "-i", *method, "--request-target", line.target, f"http://{address}/")
    head, _, body = told.stdout.partition(b"\r\n\r\n")
    return *parsed(head), body


def by_wget(address, line):
    """Send a line of the table by wget, which uses the gateway as a proxy if the target is a whole URL."""
    url = f"http://{address}{line.target}" if line.target.startswith("/") else line.target
    proxy = ["-e", "use_proxy=yes", "-e", f"http_proxy=http://{address}"] if url == line.target else ["--no-proxy"]
    told = run("wget", "-q", "-S", "--content-on-error", "--tries=1", f"--method={line.method}", *proxy, "-O", "-", url)
    return *parsed(told.stderr), told.stdout


def run(*command):
    """Run a program, whatever its status: wget ends with 8 if the answer is an error."""
    return subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)


def parsed(head):
    """Return the status and headers in a program's output."""
    status, *fields = head.decode().strip().splitlines()
    headers = (field.strip().split(": ", 1) for field in fields)
    return int(status.split()[1]), {name.lower(): value for name, value in headers}


@pytest.mark.parametrize("ask", [by_client, by_curl, by_wget])
def test_sequins_requests_get_their_answers(two_nodes, ask):
    """Two real nodes answer each line of the page's table as shown, to each program."""
    program = ask.__name__.removeprefix("by_")
    if program != "client" and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    for line in lines():
        line.check(*ask(two_nodes[0], line))


def test_sequins_status_codes_name_their_reason(two_nodes):
    """A 404 of a key has the version; a 404 of a database, 500 and 501 have the wire's code."""
    told = {
        path: (status, headers.get("X-Sequins-Version"), headers.get("X-GossipKV-Error"))
        for path in (
            "/baby-names/foo", "/otherdb/foo", "/coming/foo", "/coming/foo?proxy=true", "/baby-names/away?proxy=2",
            "/baby-names/foo?proxy=3",
        )
        for status, headers, _ in [get(two_nodes[0], path)]
    }  # fmt: skip
    assert list(told.values()) == [
        (404, "2", None), (404, None, "UNKNOWN_DATABASE"), (404, None, "NOT_READY"), (501, None, "NOT_READY"),
        (500, None, "NOT_SERVED"), (500, None, "UNKNOWN_VERSION"),
    ]  # fmt: skip


def test_sequins_proxying_is_told(two_nodes):
    """The owner does not name itself; the other node names it, with equal bytes, time and tag, also for misses."""
    for path, owner in (("/baby-names/1881/boy", 0), ("/baby-names/away", 1), ("/baby-names/foo", 0)):
        own, forwarded = get(two_nodes[owner], path), get(two_nodes[1 - owner], path)
        assert "X-Sequins-Proxied-To" not in own[1]
        assert forwarded[1]["X-Sequins-Proxied-To"] == f"n{owner + 1}"
        assert own[0] == forwarded[0]
        assert own[2] == forwarded[2]
        for name in ("X-Sequins-Version", "Last-Modified", "ETag"):
            assert own[1].get(name) == forwarded[1].get(name)
        assert own[1].get("Last-Modified") == (MADE if own[0] == 200 else None)
        assert get(two_nodes[1 - owner], f"{path}?proxy=2")[0] == 500


def test_what_a_client_has_is_not_sent_again(two_nodes):
    """A tag or time saves the body at both nodes, also through forwarding; a newer version is sent."""
    tag = get(two_nodes[0], "/baby-names/1881/boy")[1]["ETag"]
    older = get(two_nodes[0], "/baby-names/1881/boy", {"X-Sequins-Version": "1"})
    assert older[2] == b"John"
    for address in two_nodes:
        for asked in ({"If-None-Match": tag}, {"If-Modified-Since": MADE}):
            status, headers, body = get(address, "/baby-names/1881/boy", asked)
            assert (status, headers["ETag"], headers["X-Sequins-Version"], body) == (304, tag, "2", b"")
        for asked in ({"If-None-Match": older[1]["ETag"]}, {"If-Modified-Since": "Mon, 01 Aug 2016 11:56:26 GMT"}):
            assert get(address, "/baby-names/1881/boy", asked)[::2] == (200, b"Johnny")


def test_a_part_of_a_value(two_nodes):
    """Either node serves one range, a suffix, several ranges, 416, and the whole value for a differing tag."""
    tag = get(two_nodes[0], "/baby-names/ten")[1]["ETag"]
    for address in two_nodes:
        status, headers, body = get(address, "/baby-names/ten", {"Range": "bytes=2-4", "If-Range": tag})
        assert (status, headers["Content-Range"], body) == (206, "bytes 2-4/10", b"234")
        assert get(address, "/baby-names/ten", {"Range": "bytes=-3"})[::2] == (206, b"789")
        status, headers, body = get(address, "/baby-names/ten", {"Range": "bytes=0-0,9-"})
        assert (status, headers["Content-Type"].split(";")[0]) == (206, "multipart/byteranges")
        assert [part in body for part in (b"\r\n\r\n0\r\n", b"\r\n\r\n9\r\n")] == [True, True]
        status, headers, _ = get(address, "/baby-names/ten", {"Range": "bytes=10-"})
        assert (status, headers["Content-Range"]) == (416, "bytes */10")
        assert get(address, "/baby-names/ten", {"Range": "bytes=2-4", "If-Range": '"other"'})[2] == b"0123456789"
