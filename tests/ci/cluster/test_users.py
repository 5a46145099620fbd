"""Real nodes with users: tokens change under load and are never shown, and nodes authenticate to each other."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.access.users import digest_of, token_of
from gossipkv.client import blocking
from gossipkv.errors import GossipKVError, Unauthorized
from tests.ci.cluster.node_process import PATIENCE_S, PATIENTLY, NodeProcess
from tests.ci.cluster.pages import blocks_of, is_shown
from tests.ci.cluster.test_http import Alone, gateways
from tests.ci.cluster.test_sealed_processes import keys

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = [b"key%02d" % number for number in range(100)]
FIRST, SECOND, WRONG, LEFT = (token_of(letter * 32) for letter in (b"1", b"2", b"3", b"4"))
GONE_S = 1.0  # From the change of the file to the end of the connections.


def users(path: Path, database: str = "geo", **tokens: str) -> None:
    """Replace the file: each user may read that database and see."""
    new = path.with_name("new")
    new.write_text(
        "".join(
            f'[{name}]\nmay = ["read:{database}", "see"]\ntoken = "sha256:{digest_of(token.encode()).hex()}"\n'
            for name, token in tokens.items()
        )
    )
    new.chmod(0o600)
    new.replace(path)


def source(place: Path) -> Path:
    for name in ("geo", "secrets"):
        version = place / "source" / name / "1"
        version.mkdir(parents=True)
        (version / "part-0").write_bytes(b"".join(b"%s\tvalue of %s\n" % (key, key) for key in KEYS))
    return place / "source"


def connect(address: str, token: str | None = None) -> blocking.Client:
    return blocking.connect(address, timeout_ms=PATIENCE_S * 1000, token=token)


def until(done: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(GossipKVError, OSError):
            if done():
                return
        assert time.monotonic() < give_up_s
        time.sleep(0.02)


def read(address: str, token: str) -> bytes | None:
    with connect(address, token) as client:
        return client.dataset("geo").get(KEYS[0])


def page(address: str, path: str, token: str | None) -> bytes:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with urllib.request.urlopen(urllib.request.Request(f"http://{address}{path}", headers=headers)) as answer:
        return answer.read()


class Reading:
    """A client that reads without pause."""

    def __init__(self, address: str, token: str) -> None:
        self.reads = 0
        self.failed: list[GossipKVError] = []
        self._address, self._token, self._is_over = address, token, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with connect(self._address, self._token) as client:
                    for key in KEYS:
                        assert client.dataset("geo").get(key) == b"value of " + key
                        self.reads += 1
            except GossipKVError as error:
                self.failed.append(error)
                return

    def end(self) -> list[GossipKVError]:
        self._is_over.set()
        self._thread.join()
        return self.failed


def test_tokens_change_under_load_and_stand_nowhere(tmp_path):
    """With a second token added and the first removed, the new token keeps reading and the old one ends in seconds."""
    path = tmp_path / "users"
    users(path, first=FIRST, left=LEFT)
    options = ("--users", str(path), "--http-listen", "127.0.0.1:0", "--resp-listen", "127.0.0.1:0")
    with NodeProcess(tmp_path, *options, source=source(tmp_path)) as node:
        node.ready()
        until(lambda: read(node.address, FIRST))
        with pytest.raises(Unauthorized), connect(node.address) as nobody:
            nobody.dataset("geo").get(KEYS[0])
        with pytest.raises(Unauthorized), connect(node.address, FIRST) as client:
            client.dataset("secrets").get(KEYS[0])
        with pytest.raises(Unauthorized), connect(node.address, WRONG):
            pass
        old = Reading(node.address, FIRST)
        users(path, first=FIRST, second=SECOND, left=LEFT)
        until(lambda: read(node.address, SECOND))
        new = Reading(node.address, SECOND)
        users(path, second=SECOND, left=LEFT)
        began = time.monotonic()
        until(lambda: old.failed)
        assert time.monotonic() - began < GONE_S + 4  # Other processes of the machine need their turn as well.
        assert [type(error) for error in old.end()] == [Unauthorized]
        before = new.reads
        until(lambda: new.reads > before + 2 * len(KEYS))
        assert (new.end(), old.reads > 0) == ([], True)
        told = everything_told(node, SECOND, path)
    for token in (FIRST, SECOND, WRONG, LEFT, *(digest_of(token.encode()).hex() for token in (FIRST, SECOND, LEFT))):
        assert [name for name, text in told.items() if token.encode() in text] == []
    assert b"refused" in told["log"]


def test_who_did_what_is_in_the_log(tmp_path):
    """Each operation has a line with its user and address; reads have none."""
    path = tmp_path / "users"
    path.write_text(
        f'[anna]\nmay = ["operate", "read:*", "write:*"]\ntoken = "sha256:{digest_of(FIRST.encode()).hex()}"\n'
    )
    path.chmod(0o600)
    with NodeProcess(tmp_path, "--users", str(path), "--log-format", "json", source=source(tmp_path)) as node:
        node.ready()
        until(lambda: read(node.address, FIRST))
        with connect(node.address, FIRST) as client:
            client.call("hold", "geo", "1")
            client.call("create_table", "carts", {"kind": "hash", "replication": 1, "partitions": 1})
            client.table("carts").put(b"k", b"v")
            client.call("delete_range", "carts", {"prefix": b"k"})
            with pytest.raises(GossipKVError):
                client.call("drop_table", "nowhere")
        until(lambda: node.said().count('"operated"') == 4)
        lines = [json.loads(line) for line in node.said().splitlines() if '"operated"' in line]
    assert {(line["user"], line["address"]) for line in lines} == {("anna", "127.0.0.1")}
    assert [(line["method"], line["object"], line["options"], line["result"]) for line in lines] == [
        ("hold", "geo 1", "", "done"),
        ("create_table", "carts", "kind=hash replication=1 partitions=1", "done"),
        ("delete_range", "carts", "prefix=k", "done"),
        ("drop_table", "nowhere", "", "UNKNOWN_DATABASE"),
    ]


def by_resp(address: str, *words: str | bytes) -> bytes:
    """Return all bytes that a Redis client is answered, up to the end of the connection."""
    host, _, port = address.rpartition(":")
    commands = [word.encode() if isinstance(word, str) else word for word in words]
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        for command in (*commands, b"QUIT"):
            parts = command.split(b" ")
            connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        return connection.makefile("rb").read()


def by_command(address: str, token: str, *words: str) -> bytes:
    """Return the output of a command that finds its token in the environment."""
    command = [sys.executable, "-m", "gossipkv", *words]
    environ = {**os.environ, "GOSSIPKV_NODE": address, "GOSSIPKV_TOKEN": token}
    done = subprocess.run(command, capture_output=True, env=environ, timeout=PATIENCE_S, check=False)
    return done.stdout + done.stderr


def everything_told(node: NodeProcess, token: str, path: Path) -> dict[str, bytes]:
    """Return the log, the pages, the answers on the wire and of commands, and the process data of the system."""
    site = gateways(node)[0][0]
    told: dict[str, bytes] = {}
    for target in ("/", "/geo/", "/metrics", "/debug/vars", "/healthz", "/readyz?verbose"):
        told[target] = page(site, target, token)
        if target not in {"/healthz", "/readyz?verbose"}:
            with pytest.raises(urllib.error.HTTPError, match="401"):
                page(site, target, WRONG)
    with connect(node.address, token) as client:
        for method in ("info", "status", "members", "databases", "verdict"):
            told[method] = repr(client.call(method, *([{}] if method in {"status", "verdict"} else []))).encode()
        told["resp"] = by_resp(
            str(client.info()["resp"]),
            f"AUTH {WRONG}",
            f"HELLO 3 AUTH first {token}",
            "INFO",
            f"AUTH x {WRONG}",
            "INFO",
        )
        assert told["resp"].count(b"WRONGPASS") == 2
    local = f"config --users {path}", f"users list --file {path}", f"inspect {node.log.parent / 'data' / 'NODE'}"
    asked = (f"{words} --timeout {PATIENCE_S}s" for words in ("status --json", "members --json", "get geo key00"))
    for words in (*asked, *local):
        told[words] = by_command(node.address, token, *words.split())
        assert b"key00" in told[words] or b"{" in told[words] or words in local, told[words]
    report = path.with_name("report.html")
    load = f"loadtest --db geo --duration 300ms --warm-up 0s --json --report {report}"
    told |= {"load": by_command(node.address, token, *load.split()), "report": report.read_bytes()}
    assert b'"errors": {}' in told["load"], told["load"]
    told["refused"] = by_command(node.address, WRONG, "status")
    assert b"no user has this token" in told["refused"]
    parent = node.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for process in (str(parent), *children):
        for file in ("cmdline", "environ"):
            told[f"{process} {file}"] = Path(f"/proc/{process}/{file}").read_bytes()
    node.stop()
    told["log"] = node.said().encode()
    for place, _, files in os.walk(node.log.parent / "data"):
        told |= {f"{place}/{name}": Path(place, name).read_bytes() for name in files}
    return told


def test_nodes_prove_themselves_and_strangers_do_not(tmp_path):
    """With one replica of each partition, any key is read at either node; a stranger may call no method of nodes."""
    ring, path = tmp_path / "keys", tmp_path / "users"
    keys("new", ring)
    users(path, first=FIRST)
    options = (
        "--users",
        str(path),
        "--key-ring",
        str(ring),
        "--replication",
        "1",
        "--min-replication",
        "1",
        *PATIENTLY,
    )
    places = [tmp_path / name for name in ("a", "b")]
    for place in places:
        place.mkdir()
    data = source(tmp_path)
    with NodeProcess(places[0], *options, source=data) as first:
        first.ready()
        with NodeProcess(places[1], *options, "--join", first.address, source=data) as second:
            second.ready()
            for node in (first, second):
                with connect(node.address, FIRST) as client:
                    until(lambda client=client: client.info()["counters"]["peers"] > 0)
                    until(lambda client=client: client.dataset("geo").get_many(KEYS)[0])
                    assert client.dataset("geo").get_many(KEYS) == [b"value of " + key for key in KEYS]
                    for method in ("report", "whose", "serves", "register", "table_get", "table_write", "replica_feed"):
                        with pytest.raises(Unauthorized):
                            client.call(method, "geo")
                with pytest.raises(Unauthorized), connect(node.address) as stranger:
                    stranger.call("hello", {"protocol": 1, "cluster_id": b"", "uuid": b"u" * 16, "epoch": 1})


def test_errors_show_records_to_readers_alone(tmp_path):
    """A wrong record is shown only to users that may read the database, its position also to users that may see."""
    path, place = tmp_path / "users", source(tmp_path)
    users(path, first=FIRST)
    digest = digest_of(SECOND.encode()).hex()
    path.write_text(f'{path.read_text()}[watcher]\nmay = ["see", "read:secrets"]\ntoken = "sha256:{digest}"\n')
    (place / "geo" / "2").mkdir()
    (place / "geo" / "2" / "part-0").write_bytes(b"salary of ana: 5 million\n")
    with NodeProcess(tmp_path, "--users", str(path), "--http-listen", "127.0.0.1:0", source=place) as node:
        node.ready()
        until(lambda: "salary of ana" in node.said())
        site = gateways(node)[0][0]
        told = {}
        for token in (FIRST, SECOND):
            with connect(node.address, token) as client:
                told[token] = str(client.call("status", {"database": "geo"})), str(client.call("verdict"))
        assert "salary of ana" in told[FIRST][0]
        where = str(place / "geo" / "2" / "part-0")
        ready = [page(site, "/readyz?verbose", token).decode() for token in (None, SECOND, FIRST)]
        for said in (*told[SECOND], told[FIRST][1], *ready):
            assert "salary" not in said
        assert all(where in said for said in (*told[SECOND], *ready[1:]))
        assert where not in ready[0]


def test_what_is_no_token_and_who_may_no_longer(tmp_path):
    """Tokens of any length and encoding are refused, and the node goes on; a scan ends with its right."""
    path = tmp_path / "users"
    users(path, first=FIRST)
    options = ("--users", str(path), "--http-listen", "127.0.0.1:0", "--resp-listen", "127.0.0.1:0")
    with NodeProcess(tmp_path, *options, source=source(tmp_path)) as node:
        node.ready()
        until(lambda: read(node.address, FIRST))
        with connect(node.address, FIRST) as client:
            site, resp = gateways(node)[0][0], str(client.info()["resp"])
            cursor = client.call("scan", "geo", {"limit": 10})[1]
            for token in (FIRST + "1", FIRST.encode("utf-16"), b"\xff\x00" * 20, b"gkv-" * (1 << 18)):
                with pytest.raises(Unauthorized), connect(node.address) as stranger:
                    stranger.call("auth", token)
            assert b"WRONGPASS" in by_resp(resp, b"AUTH " + b"gkv-" * (1 << 18), b"GET geo:key00")
            assert by_http(site, "\xe9" * 1000).startswith(b"HTTP/1.1 401 ")
            assert by_http(site, "x" * (1 << 20)).startswith(b"HTTP/1.1 431 ")
            (shown,) = (block.text for block in blocks_of("docs/users/http.md") if block.language == "http")
            assert is_shown(shown, by_http(site).decode().replace("\r\n", "\n").replace("Connection: close\n", ""))
            users(path, "secrets", first=FIRST)
            until(lambda: client.call("get", "secrets", KEYS[0]))
            with pytest.raises(Unauthorized):
                client.call("scan", "geo", {"limit": 10, "cursor": cursor})
        assert "users_unchanged" not in node.said()


def by_http(address: str, token: str | None = None) -> bytes:
    """Return the answer to an HTTP request for a key."""
    host, _, port = address.rpartition(":")
    shown = "" if token is None else f"Authorization: Bearer {token}\r\n"
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        with contextlib.suppress(OSError):  # The gateway ends the connection after too many bytes.
            connection.sendall(
                f"GET /geo/key00 HTTP/1.1\r\nHost: a\r\n{shown}Connection: close\r\n\r\n".encode("latin-1")
            )
        return connection.makefile("rb").read()


def test_a_gateway_alone_lends_no_right_to_write(tmp_path: Path) -> None:
    """Anonymous clients of `gossipkv http` read with its token, and write only with `--allow-writes`."""
    path, secret = tmp_path / "users", tmp_path / "token"
    may = '["read:*", "write:*", "operate", "see"]'
    path.write_text(f'[gateway]\nmay = {may}\ntoken = "sha256:{digest_of(FIRST.encode()).hex()}"\n')
    secret.write_text(FIRST)
    for file in path, secret:
        file.chmod(0o600)
    with NodeProcess(tmp_path, "--users", str(path)) as node:
        node.ready()
        with connect(node.address, FIRST) as client:
            client.call("create_table", "carts", {"kind": "hash", "partitions": 1, "replication": 1})
            until(lambda: client.table("carts").put(b"ana", b"pear") is None)
        options = ("--node", node.address, "--listen", "127.0.0.1:0", "--token-file", str(secret))
        for more, status in ((), 403), (("--allow-writes",), 204):
            with Alone(*options, *more) as gateway:
                assert page(gateway.address, "/carts/ana", None) == b"pear"
                for method, target in ("PUT", "/carts/bob"), ("DELETE", "/carts/bob"), ("POST", "/carts/_mput"):
                    connection = http.client.HTTPConnection(gateway.address, timeout=PATIENCE_S)
                    body = None if method == "DELETE" else b'{"key": "eve", "value": "fig"}'
                    connection.request(method, target, body, {"Content-Type": "application/x-ndjson"})
                    assert connection.getresponse().status == status, (method, more)
                    connection.close()
