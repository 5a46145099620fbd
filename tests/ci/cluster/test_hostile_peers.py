"""A real node among peers that behave badly: each is closed in time, and other clients never notice."""

from __future__ import annotations

import contextlib
import itertools
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.wire import rpc
from tests.ci.cluster.hostile_peers import (
    BIG,
    GET,
    GOT,
    HURRIED,
    PING,
    PONG,
    RECORDS,
    SETTINGS,
    UNHURRIED,
    StarvedError,
    Victim,
    answers,
    attacked,
    check_typed,
    connections,
    patient,
    reset,
    until_end,
)
from tests.ci.cluster.node_process import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with attacked(tmp_path_factory.mktemp("hostile"), *SETTINGS, *UNHURRIED) as victim:
        yield victim


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """Start a node with short timeouts for its peers."""
    with attacked(tmp_path_factory.mktemp("hurried"), *SETTINGS, *HURRIED) as victim:
        yield victim


def test_a_bystander_that_is_starved_is_noticed(victim: Victim) -> None:
    """The bystander detects a node that stands still for 100 ms in each second."""

    def stand_still() -> None:
        with victim.undisturbed():
            for _ in range(3):
                victim.node.process.send_signal(signal.SIGSTOP)
                time.sleep(0.1)
                victim.node.process.send_signal(signal.SIGCONT)
                time.sleep(0.4)

    with pytest.raises(StarvedError):
        stand_still()


@patient
def test_half_sent_requests_and_a_byte_at_a_time(hurried: Victim) -> None:
    """The timeout runs from the first byte, not from the last: a peer that trickles bytes is closed as well."""
    victim = hurried
    before = victim.counters()["closed_frame_timeout"]
    large = rpc.request(7, "get", ["geo", b"x" * 1000])
    with victim.undisturbed(least_s=2), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(victim.connect()) for _ in range(100)]
        began_s = time.monotonic()
        for number, peer in enumerate(peers):
            peer.sendall(GET[: 1 + number % (len(GET) - 1)] if number % 2 else large[:1])
        alive, at = set(range(0, 100, 2)), 1
        while alive:
            # A node that waited while bytes come would never close the connection.
            assert time.monotonic() - began_s < PATIENCE_S
            time.sleep(0.1)
            for number in tuple(alive):
                try:
                    peers[number].send(large[at : at + 1])
                except ConnectionError:
                    alive.remove(number)
            at += 1
        assert time.monotonic() - began_s > 0.9  # frame_timeout is 1 s; its check runs every half second.
        assert all(until_end(peer) == [] for peer in peers[1::2])
    assert victim.counters()["closed_frame_timeout"] == before + 100


@patient
def test_peers_that_never_read(hurried: Victim) -> None:
    """They are closed after `output_timeout`, and the output held for them is bounded."""
    victim = hurried
    before = victim.counters()
    with victim.undisturbed(most_mib=20), contextlib.ExitStack() as stack:
        peers, held = [stack.enter_context(victim.connect(receive_buffer=4096)) for _ in range(20)], []
        for peer in peers:
            with contextlib.suppress(ConnectionError):
                peer.sendall(BIG * 100)
            held.append(victim.counters()["held_bytes"])
        while (now := victim.counters())["connections"] > 2:
            held.append(now["held_bytes"])
            time.sleep(0.05)
        assert max(held) <= 8 << 20
        assert now["held_bytes"] == 0
    closed = {name: now[name] - before[name] for name in ("closed_output_timeout", "closed_memory")}
    assert sum(closed.values()) == 20
    assert closed["closed_output_timeout"] > 5


@patient
def test_a_peer_that_reads_slowly_gets_everything(victim: Victim) -> None:
    """A peer that reads 4 MB/s gets all its answers, and the node does not buffer them by the megabyte."""
    before = victim.counters()["paused_for_output"]
    with victim.undisturbed(most_mib=8), victim.connect(receive_buffer=65_536) as peer:
        peer.sendall(BIG * 10)
        left = 10 * len(rpc.response(8, [RECORDS[b"big"], "1"]))
        for turn in itertools.count():
            data = peer.recv(min(left, 200_000 if turn < 15 else 1 << 20))
            assert data
            left -= len(data)
            if not left:
                break
            # The kernel reports free space in steps of a megabyte: see `output_timeout`.
            time.sleep(0.05 if turn < 15 else 0)
    assert victim.counters()["paused_for_output"] > before


@patient
def test_a_byte_in_each_segment(victim: Victim) -> None:
    """A hundred connections send pipelined requests byte by byte, and every answer is right."""
    stream = b"".join(rpc.request(number, "get", ["geo", b"key%04d" % number]) for number in range(10))
    expected = b"".join(rpc.response(number, [RECORDS[b"key%04d" % number], "1"]) for number in range(10))
    with victim.undisturbed(), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(victim.connect()) for _ in range(100)]
        for at in range(len(stream)):
            for peer in peers:
                peer.send(stream[at : at + 1])
        for peer in peers:
            received = b""
            while len(received) < len(expected):
                data = peer.recv(1 << 16)
                assert data
                received += data
            assert received == expected


@patient
def test_urgent_data(victim: Victim) -> None:
    """Urgent data is ignored, and a peer that sends nothing else does not keep the node busy."""
    with victim.undisturbed(), victim.connect() as peer:
        for _ in range(3):
            peer.send(b"!", socket.MSG_OOB)
            peer.sendall(GET[:5])
            peer.send(b"!", socket.MSG_OOB)
            peer.sendall(GET[5:])
            assert peer.recv(100) == GOT
        peer.send(b"!", socket.MSG_OOB)  # No read follows the byte, so it stays.
        before, give_up_s = victim.sleeps(), time.monotonic() + PATIENCE_S
        while victim.sleeps() < before + 20:  # A busy thread never sleeps.
            assert time.monotonic() < give_up_s
            time.sleep(0.01)


@patient
def test_ends_at_every_byte(victim: Victim) -> None:
    """The peer ends or resets the connection after each byte of a pipeline: complete requests are answered."""
    stream = GET + rpc.request(9, "scan", ["geo", {"limit": 1}]) + PING + BIG
    whole = [len(GET), len(GET) + len(stream[len(GET) : -len(PING + BIG)]), len(stream) - len(BIG), len(stream)]
    with victim.undisturbed(most_mib=16):
        for at in range(len(stream) + 1):
            with victim.connect() as peer:
                peer.sendall(stream[:at])
                peer.shutdown(socket.SHUT_WR)
                assert len(until_end(peer)) == sum(at >= end for end in whole)
            peer = victim.connect()
            peer.sendall(stream[:at])
            reset(peer)


@patient
def test_a_flood_of_connections(victim: Victim) -> None:
    """The limit of connections is served, others are closed, and closed connections make room."""
    before = victim.counters()
    with victim.undisturbed(most_mib=16), contextlib.ExitStack() as stack:
        addresses = [f"127.0.0.{number}" for number in range(2, 12)]
        peers = [stack.enter_context(victim.connect(source=one)) for one in addresses for _ in range(100)]
        served = 0
        for peer in peers:
            with contextlib.suppress(ConnectionError):
                peer.sendall(PING)
                served += peer.recv(100) == PONG
        assert 0 < served <= 300  # Silent connections make way; how many have done so when they ask depends on time.
    victim.until("closed_by_peer", before["closed_by_peer"] + served)
    give_up_s = time.monotonic() + PATIENCE_S
    while (after := victim.counters())["connections"] > 3:  # Connections that ask for counters are closed as well.
        assert time.monotonic() < give_up_s, after
        time.sleep(0.05)
    closed = sum(after[name] - before[name] for name in ("connections_refused", "closed_unproven"))
    assert closed == 1000 - served


@patient
def test_one_address_cannot_take_all_connections(victim: Victim) -> None:
    """Connections beyond the address's share are closed, and other addresses are served."""
    before = victim.counters()["connections_refused_by_address"]
    with victim.undisturbed(most_mib=16), contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(victim.connect(source="127.0.0.2"))
        with victim.connect() as other:
            other.sendall(PING)
            assert other.recv(100) == PONG
        assert victim.counters()["connections_refused_by_address"] == before + 150


@patient
def test_peers_that_vanish_at_once(victim: Victim) -> None:
    """Two thousand peers vanish before they are accepted, with an end, a reset or half a request."""
    with victim.undisturbed(most_mib=16):
        for number in range(2000):
            peer = socket.socket()
            peer.setblocking(number % 4 > 0)
            with contextlib.suppress(BlockingIOError):
                peer.connect(victim.place)
            if number % 4 > 1:
                peer.send(GET[: number % len(GET)])
            reset(peer) if number % 2 else peer.close()
    with victim.connect() as peer:
        peer.sendall(PING)
        assert peer.recv(100) == PONG


DYING = """
import os, random, signal, socket, sys, threading, time
from gossipkv.wire import rpc
host, _, port = sys.argv[1].rpartition(":")
asked = [rpc.request(7, "get", ["geo", b"big"]), rpc.request(8, "scan", ["geo", {"limit": 50, "prefix": "key"}]),
         rpc.request(9, "refresh", []), rpc.request(10, "get_many", ["geo", [b"key%04d" % n for n in range(1000)]])]
draw = random.Random(int(sys.argv[2]))
threading.Timer(0.05 + draw.random() / 4, os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    peers = [socket.create_connection((host, int(port)), timeout=60) for _ in range(4)]
    for peer in peers:
        peer.sendall(b"".join(draw.choices(asked, k=3))[: -draw.randint(1, 20)])
    for peer in peers:
        peer.recv(draw.choice([1, 1000, 1 << 20]))
    time.sleep(0.02)
"""


@patient
def test_clients_that_die_in_the_middle_of_anything(victim: Victim) -> None:
    """Clients killed while they connect, send and read leave nothing behind."""
    with victim.undisturbed(least_s=1, most_mib=40):
        for seed in range(6):
            client = subprocess.run(
                [sys.executable, "-c", DYING, victim.node.address, str(seed)],
                capture_output=True,
                timeout=60,
                check=False,
            )
            assert client.returncode == -signal.SIGKILL, client.stderr
    give_up_s = time.monotonic() + PATIENCE_S
    while (left := victim.counters())["connections"] > 2 or left["held_bytes"] or left["in_flight"] > 1:
        assert time.monotonic() < give_up_s, left
        time.sleep(0.05)


@patient
def test_descriptors_run_out(victim: Victim) -> None:
    """Both pumps serve established peers; newcomers wait, and are served when descriptors are free again."""
    pid = victim.node.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir())
    before = victim.counters()["accept_pauses"]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 20, limits[1]))
    try:
        with victim.undisturbed(least_s=1.5), contextlib.ExitStack() as stack:
            peers = [stack.enter_context(victim.connect()) for _ in range(50)]
            for peer in peers:
                peer.sendall(PING)
            assert all(peer.recv(100) == PONG for peer in peers[:10])
            assert min(connections(peers[0])) >= 5
            peers[-1].settimeout(0.7)
            with pytest.raises(TimeoutError):
                peers[-1].recv(100)
            for peer in peers[:40]:
                peer.close()
            peers[-1].settimeout(PATIENCE_S)
            assert all(peer.recv(100) == PONG for peer in peers[40:])
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    assert victim.counters()["accept_pauses"] > before


def assert_served(peers: list[socket.socket]) -> None:
    for peer in peers:
        peer.sendall(GET)
    assert all(peer.recv(1000) == GOT for peer in peers)


@pytest.mark.parametrize("pumps", [1, 2])
def test_thousands_of_connections(tmp_path: Path, pumps: int) -> None:
    """All pumps share the connections evenly, also after half are closed; a connection above the limit is closed."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(10_000, allowed - 500) // 100 * 100
    limits = ["--max-connections", str(count + 2), "--max-connections-per-address", "off"]
    with attacked(tmp_path, *limits, "--pumps", str(pumps)) as victim, contextlib.ExitStack() as stack:
        first = stack.enter_context(victim.connect())
        assert_served([first])  # A connection near the limit that has asked nothing makes way.
        peers: list[socket.socket] = []
        for _ in range(2):
            while len(peers) < count:
                peers.append(stack.enter_context(victim.connect()))
                assert_served(peers[-1:])
            assert_served(peers)
            of_each = connections(first)
            assert len(of_each) == pumps
            assert sum(of_each) == count + 2  # The bystander has a connection too.
            assert max(of_each) - min(of_each) <= 1
            with victim.connect() as further:
                assert further.recv(100) == b""
            for peer in peers[::2]:  # With two pumps these are all of one pump.
                peer.close()
            while sum(connections(first)) > count // 2 + 2:
                time.sleep(0.05)
            del peers[::2]


@patient
def test_one_line_for_each_reason_in_each_period(tmp_path: Path) -> None:
    """Each reason is logged once per period, here a second instead of a minute, and the counts are complete."""
    hostile = {
        "closed_bad_message": b"GET / HTTP/1.1\r\n\r\n",
        "closed_unasked_response": rpc.response(1, None),
        "bad_requests": b"\x92\x00\x07",
        "notifications_ignored": b"\x91\x02" * 10,
        "closed_frame_timeout": GET[:3],
    }
    changed = "from gossipkv.serving import pumps\npumps.REPORT_PERIOD_S = 1.0"
    with attacked(tmp_path, "--frame-timeout", "100ms", "--idle-timeout", "3s", changed=changed) as victim:
        victim.began_s = float("-inf")  # This allows any number of lines.
        with victim.undisturbed(), contextlib.ExitStack() as stack:
            idle = [stack.enter_context(victim.connect()) for _ in range(100)]
            began_s, rounds = time.monotonic(), 0
            while rounds <= 20 or min(lines_about(victim, hostile).values()) < 2:
                assert time.monotonic() < began_s + PATIENCE_S
                for data in hostile.values():
                    for _ in range(5):
                        stack.enter_context(victim.connect()).sendall(data)
                rounds += 1
                time.sleep(0.02)
            assert all(until_end(peer) == [] for peer in idle)
            wanted = {reason: 5 * rounds * (10 if reason == "notifications_ignored" else 1) for reason in hostile}
            for reason, count in wanted.items():
                victim.until(reason, count)
            give_up_s = time.monotonic() + PATIENCE_S
            while time.monotonic() < give_up_s and not all(told(victim, reason) for reason in hostile):
                time.sleep(0.1)
        seconds = time.monotonic() - began_s
        counters, troubles = victim.counters(), victim.troubles()
    for reason in hostile:
        lines = [count for name, count in troubles if name == reason]
        assert len(lines) <= seconds + 1
        assert sum(lines) == counters[reason] == wanted[reason]
    assert counters["closed_idle"] >= 100


def lines_about(victim: Victim, reasons: Iterable[str]) -> dict[str, int]:
    """Return the number of log lines for each reason."""
    logged = [name for name, _ in victim.troubles()]
    return {reason: logged.count(reason) for reason in reasons}


def told(victim: Victim, reason: str) -> bool:
    """True if the logged counts of a reason have reached the counter."""
    return sum(count for name, count in victim.troubles() if name == reason) >= victim.counters()[reason]


@patient
def test_a_flood_of_requests_that_take_time(victim: Victim) -> None:
    """Twenty peers send a thousand `refresh` each: all get an answer or OVERLOADED; those that left are forgotten."""
    flood = b"".join(rpc.request(number, "refresh", []) for number in range(1000))
    with victim.undisturbed(least_s=1, most_mib=64, most_ms=200), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(victim.connect()) for _ in range(20)]
        for peer in peers:
            peer.sendall(flood)
        for number, peer in enumerate(peers):
            if number % 2:
                reset(peer)
                continue
            found = answers(peer, 1000)
            check_typed(found)
            assert sorted(msgid for _, msgid, _, _ in found) == list(range(1000))
            assert {error and error[0] for _, _, error, _ in found} <= {None, "OVERLOADED"}
    give_up_s = time.monotonic() + PATIENCE_S
    while victim.counters()["in_flight"] > 1:
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


@patient
def test_requests_that_cost_more_than_they_look(victim: Victim) -> None:
    """A request has 16,000 keys, empty or missing, or an invalid last key."""
    many = b"\x94\x00\x07\xa8get_many\x92\xa3geo\xdd"
    many += (16_000).to_bytes(4, "big")
    requests = [many + b"\xa0" * 16_000, many + b"\xa1z" * 16_000, many + b"\xa0" * 15_999 + b"\xc0"]
    with victim.undisturbed(least_s=1, most_mib=48), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(victim.connect()) for _ in range(3)]
        for _ in range(3):
            for peer, request in zip(peers, requests, strict=True):
                peer.sendall(request)
            found = [answers(peer, 1)[0] for peer in peers]
            assert [error and error[0] for _, _, error, _ in found] == [None, None, "BAD_REQUEST"]
            assert [len(result[0]) for _, _, _, result in found[:2]] == [16_000, 16_000]
            time.sleep(0.1)


def test_collections_leave_out_what_a_node_is_made_of() -> None:
    """Otherwise each full collection during Python answers would stop all clients for 30 ms."""
    program = (
        "import gc\nfrom gossipkv.cli import serve\nserve._Announcement().started(('127.0.0.1', 7070))\n"
        "print(gc.get_freeze_count() > 20_000, gc.isenabled())"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert said == "ready 127.0.0.1:7070\nTrue True\n"
