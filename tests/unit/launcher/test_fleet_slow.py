"""A fleet assigns ports before any process runs, and a supervisor survives bad requests."""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import LocalError
from gossipkv.launcher import NodeStatus, control, supervisor
from gossipkv.launcher.fleet import NodeFleet
from gossipkv.launcher.plan import HOST, ClusterPlan, NodePlan, load
from gossipkv.launcher.supervisor import ClusterSupervisor
from tests.ports import quiet_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def at_rest(
    directory: Path, *nodes: NodePlan, http: bool = False, http_base_port: int | None = None
) -> Iterator[NodeFleet]:
    """Yield a fleet whose nodes are not started."""
    fleet = NodeFleet(directory, ClusterPlan([*nodes], http=http), base_port=None, http_base_port=http_base_port)
    fleet.send_all(0)
    try:
        yield fleet
    finally:
        for reservation in (*fleet._reservations.values(), *fleet._http_reservations.values()):
            reservation.close()


def test_the_port_of_a_sibling(tmp_path):
    """The port stays with its node while that is down; other nodes do not get it, and the error names the node."""
    first, second = quiet_ports(2)
    with at_rest(tmp_path, NodePlan(1, first), NodePlan(2, second)) as fleet:
        with pytest.raises(
            LocalError, match=rf"127\.0\.0\.1:{second} is already the port of n2; choose another --port"
        ):
            fleet.start(1, settings={}, port=second)
        with pytest.raises(LocalError, match=rf"127\.0\.0\.1:{first} is already the port of n1"):
            fleet.add(settings={}, port=first, called="")
    assert [node.port for node in load(tmp_path).nodes] == [first, second]


def test_a_node_may_be_told_its_own_port(tmp_path, monkeypatch):
    """The port is reserved for the node itself."""
    (own,) = quiet_ports(1)
    with at_rest(tmp_path, NodePlan(1, own)) as fleet:
        monkeypatch.setattr(fleet, "_start", lambda node: node.port)
        assert fleet.start(1, settings={}, port=own) == own
    assert load(tmp_path).node(1).port == own


def test_a_port_that_is_in_use(tmp_path):
    """The error names the flag."""
    (own,) = quiet_ports(1)
    with at_rest(tmp_path, NodePlan(1, own)) as fleet, socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LocalError, match=f"{port} is in use .*; choose another --port"):
            fleet.start(1, settings={}, port=port)


def test_a_port_that_two_remember(tmp_path):
    """The first node keeps the port; the second gets another."""
    (port,) = quiet_ports(1)
    with at_rest(tmp_path, NodePlan(1, port), NodePlan(2, port)):
        first, second = (node.port for node in load(tmp_path).nodes)
    assert first == port
    assert second not in {0, port}


def test_ports_for_http(tmp_path):
    """Each node has a remembered HTTP port; new nodes get one too, and a taken one is replaced."""
    first, second, wanted = quiet_ports(3)
    with at_rest(tmp_path, NodePlan(1, first, http_port=wanted), NodePlan(2, second), http=True) as fleet:
        told = [NodeStatus(**each).http for each in fleet.status()]
        remembered = load(tmp_path)
        assert told[0] == f"127.0.0.1:{wanted}"
        assert [str(node.http) for node in remembered.nodes] == told
        assert len({first, second, *(node.http_port for node in remembered.nodes)}) == 4
        assert f"--http-listen {told[1]}" in " ".join(remembered.command(tmp_path, 2))
        with pytest.raises(
            LocalError, match=rf"127\.0\.0\.1:{wanted} is already the port of n1; choose another --port"
        ):
            fleet.start(2, settings={}, port=wanted)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((HOST, wanted))
        other.listen()
        with at_rest(tmp_path, *remembered.nodes, http=True):
            again = load(tmp_path)
    assert again.nodes[0].http_port not in {0, wanted}
    assert again.nodes[1].http_port == remembered.nodes[1].http_port
    with at_rest(tmp_path, *remembered.nodes):
        assert [node.http for node in load(tmp_path).nodes] == [None, None]


def test_exactly_these_ports_for_http(tmp_path):
    """A port in use, by another process or a node, is refused with the flag."""
    (first,) = quiet_ports(1)
    with pytest.raises(LocalError, match=f"{first} is already the port of a node; choose another --http-base-port"):
        NodeFleet(tmp_path, ClusterPlan([NodePlan(1, first)], http=True), base_port=None, http_base_port=first)
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        taken = other.getsockname()[1]
        with pytest.raises(LocalError, match=f"{taken} is in use .*; choose another --http-base-port"):
            NodeFleet(tmp_path, ClusterPlan([NodePlan(1, 0)], http=True), base_port=None, http_base_port=taken)
    (wanted,) = quiet_ports(1)
    with at_rest(tmp_path, NodePlan(1, 0), http=True, http_base_port=wanted):
        assert load(tmp_path).nodes[0].http_port == wanted
    remembered = load(tmp_path).nodes
    with at_rest(tmp_path, *remembered, http=True, http_base_port=wanted):  # Its port of the last run.
        assert load(tmp_path).nodes[0].http_port == wanted


def test_a_full_disk_does_not_end_the_cluster(tmp_path, monkeypatch):
    """The plan is saved with the next change."""

    def fail(*_):
        raise OSError(errno.ENOSPC, "disk full")

    with at_rest(tmp_path, NodePlan(1, quiet_ports(1)[0])) as fleet:
        fleet._children[1] = SimpleNamespace(reap=lambda: False, is_ready=True)
        with monkeypatch.context() as patch:
            patch.setattr(ClusterPlan, "save", fail)
            fleet.look()
        fleet._replace(fleet._plan.node(1))
    assert load(tmp_path).formed


def test_a_node_that_cannot_be_started(tmp_path, monkeypatch):
    """The node is reported as failed with the reason, and the supervisor starts the next one."""

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with at_rest(tmp_path, *(NodePlan(number, port) for number, port in enumerate(quiet_ports(2), 1))) as fleet:
        fleet._waiting = [1, 2]
        with monkeypatch.context() as patch:
            patch.setattr(NodeFleet, "_start", fail)
            assert fleet.start_next() is None
        first, second = (NodeStatus(**told) for told in fleet.status())
    assert first.failed
    assert first.end() == f"could not be started ({tmp_path / 'n1'}: No space left on device)"
    assert second.state == "starting"


@pytest.fixture
def listening(tmp_path):
    """Yield a supervisor that listens, without running nodes."""
    with at_rest(tmp_path, NodePlan(1, quiet_ports(1)[0])) as fleet:
        made = ClusterSupervisor(tmp_path, fleet, lock=-1, leash=None)
        yield made
        for held in (made._listener, made._signals, made._signalled, made._selector):
            held.close()


@pytest.mark.parametrize(
    "message",
    [
        b"[]\n", b"7\n", b"\xff\n", b"[" * 200_000 + b"\n", b"{}\n", b'{"do": []}\n',
        b'{"do": "down", "grace_s": []}\n', b'{"do": "down", "grace_s": "nan"}\n',
        b'{"do": "start", "node": 1, "settings": {"cluster": 1}, "port": null}\n',
        b'{"do": "start", "node": 1, "settings": {}, "port": -1}\n',
    ],
)  # fmt: skip
def test_odd_messages_do_not_end_the_cluster(tmp_path, listening, message):
    """The next message is answered, whatever the message."""
    for said in (message, b'{"do": "status"}\n'):
        with control.connect(tmp_path) as connection:
            sender = threading.Thread(target=_send, args=(connection, said))
            sender.start()
            attend(listening)
            sender.join()
            reply = connection.makefile("rb").readline() if said != message else b""
    assert not listening._ends
    assert b'"nodes"' in reply


def attend(listening: ClusterSupervisor) -> None:
    """Accept a connection, and serve it until its request is complete."""
    listening._accept()
    while listening._selector.get_map():
        for key, _ in listening._selector.select(60):
            key.data()


def _send(connection: socket.socket, said: bytes) -> None:
    with suppress(OSError):
        connection.sendall(said)


@pytest.mark.parametrize(
    "request_",
    [
        {"do": "start", "node": 1, "settings": {}, "port": None},
        {"do": "add", "settings": {}, "port": 0, "called": ""},
    ],
)
def test_nothing_starts_while_the_cluster_ends(listening, request_):
    """A node started now would miss the order to end, and `down` would wait for it."""
    listening._end(0.0)
    assert "is ending" in listening._answer(request_)["error"]


def test_no_descriptor_for_a_request(tmp_path, listening, monkeypatch):
    """The accept is retried after a pause, and the request is answered."""
    pauses_s = []
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(sleep=pauses_s.append))

    def fail():
        raise OSError(errno.EMFILE, "too many open files")

    with control.connect(tmp_path) as connection:
        _send(connection, b'{"do": "status"}\n')
        with monkeypatch.context() as patch:
            patch.setattr(listening, "_listener", SimpleNamespace(accept=fail))
            for _ in range(3):
                listening._accept()
        assert pauses_s == [supervisor.ACCEPT_PAUSE_S] * 3
        assert not listening._ends
        attend(listening)
        assert b'"nodes"' in connection.makefile("rb").readline()
