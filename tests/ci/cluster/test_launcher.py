"""The launcher with real processes: they start together, follow orders, and none outlives its parent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from gossipkv.client import blocking
from gossipkv.errors import ConfigError, LocalError, Unavailable
from gossipkv.launcher import Cluster, NodeFailed, NotUp, control
from gossipkv.launcher import local_cluster as launcher
from tests.ports import neighbouring_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


PATIENCE_S = 60
COMMAND = [sys.executable, "-m", "gossipkv", "cluster"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, as docs/operators/cluster.md starts them for tests."""
    with Cluster(tmp_path_factory.mktemp("cluster"), nodes=3) as cluster:
        yield cluster


def lives(process: int) -> bool:
    """False also for a process that only waits to be reaped."""
    try:
        with open(f"/proc/{process}/stat", "rb") as told:
            return told.read().rpartition(b") ")[2][:1] not in {b"Z", b"X"}
    except OSError:
        return False


def await_end_of(*processes: int | None) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while left := [process for process in processes if process is not None and lives(process)]:
        assert time.monotonic() < give_up_s, left
        time.sleep(0.02)


def processes_of(cluster: Cluster) -> list[int]:
    return [node.process for node in cluster.status() if node.process is not None]


def run(*arguments: str | Path, status: int = 0) -> tuple[str, str]:
    """Run a command that ends with `status`; return its standard output and standard error."""
    command = [*COMMAND, *(str(argument) for argument in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == status, done
    return done.stdout, done.stderr


@contextmanager
def up(directory: Path, *arguments: str, ignoring_interrupts: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Run `cluster up` in the foreground until its table is written; end it with the block."""
    command = [*COMMAND, "up", "--data", str(directory), "--nodes", "2", *arguments]
    if ignoring_interrupts:  # A shell without job control starts its background jobs so.
        command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while "Ctrl-C ends the cluster" not in (line := process.stdout.readline()):
                assert line, process.stderr.read()
            yield process
        finally:
            process.kill()


def test_nodes_come_up_together(cluster):
    """Each node is a process with its own address and directory, and answers when the cluster is up."""
    nodes = cluster.status()
    assert [(node.index, node.name, node.state) for node in nodes] == [(n, f"n{n}", "ready") for n in (1, 2, 3)]
    assert len({node.process for node in nodes} | {node.address for node in nodes} | {node.data for node in nodes}) == 9
    for node in nodes:
        with cluster.connect(node.index, timeout_ms=60_000) as client:
            assert client.info()["node"] == node.name
        assert "ready" in cluster.log(node.index)


def test_what_a_cluster_makes_is_nobody_else_s(tmp_path):
    """The directory, the control socket from the start, and the nodes' files and logs are private."""
    before = os.umask(0)
    try:
        with Cluster(tmp_path / "new", nodes=1) as cluster:
            found = [cluster.directory, *cluster.directory.rglob("*")]
            kinds = {stat.S_IFMT(path.lstat().st_mode) for path in found}
            assert kinds == {stat.S_IFDIR, stat.S_IFREG, stat.S_IFSOCK}
            assert [path for path in found if path.lstat().st_mode & 0o077] == []
            assert "not_private" not in cluster.log(1)
    finally:
        os.umask(before)


def test_nodes_are_of_the_launcher_s_own_program_wherever_it_stands(tmp_path, monkeypatch):
    """Nodes ignore a package in the working directory, as in an unbuilt clone, and get the given variables."""
    (tmp_path / "gossipkv").mkdir()
    (tmp_path / "gossipkv" / "__init__.py").write_text("raise ImportError('not this one')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setenv("GOSSIPKV_PROFILE", "nonsense")
    given = {**os.environ, "GOSSIPKV_PROFILE": "local", "GOSSIPKV_CLUSTER": "given"}
    with Cluster(tmp_path / "cluster", nodes=1, environ=given) as cluster, cluster.connect(timeout_ms=60_000) as client:
        assert client.info()["cluster"] == cluster.name == "given"


def test_a_node_is_killed_and_started_again(cluster):
    """The launcher reports SIGKILL; the node comes back at the same address on the same data."""
    before = cluster.node(2)
    killed = cluster.kill(2)
    assert (killed.state, killed.exit_status, killed.process) == ("ended", -signal.SIGKILL, None)
    with pytest.raises(Unavailable):
        cluster.connect(2)
    again = cluster.start(2)
    assert (again.address, again.data, again.state) == (before.address, before.data, "ready")
    assert again.process != before.process
    assert "ready" in "".join(again.last_words())
    with pytest.raises(LocalError, match="n2 is running already"):
        cluster.start(2)


def test_a_node_is_stopped_and_moved(cluster):
    """A node ends cleanly on SIGTERM; started with port 0 it gets another port and keeps it."""
    assert cluster.stop(3).exit_status == 0
    old = cluster.node(3).address
    new = cluster.start(3, port=0).address
    assert new != old
    cluster.kill(3)
    assert cluster.start(3).address == new


def test_a_frozen_node_is_told(cluster):
    """SIGSTOP shows as `stopped` until SIGCONT; a frozen node can be ended cleanly."""
    cluster.send(1, signal.SIGSTOP)
    until(lambda: cluster.node(1).state == "stopped")
    cluster.send(1, signal.SIGCONT)
    until(lambda: cluster.node(1).state == "ready")
    cluster.send(1, signal.SIGSTOP)
    assert cluster.stop(1).exit_status == 0
    cluster.start(1)


def test_wrong_words_are_refused(cluster):
    """An unknown node, an unknown setting, a setting of the launcher and a second supervisor are refused."""
    with pytest.raises(LocalError, match="no node 9"):
        cluster.kill(9)
    with pytest.raises(LocalError, match="no node 9"):
        cluster.start(9)
    cluster.kill(2)
    with pytest.raises(LocalError, match="nearest known setting is refresh_period"):
        cluster.start(2, settings={"refresh_perod": "1s"})
    with pytest.raises(LocalError, match="listen cannot be set here, because the launcher chooses it"):
        cluster.start(2, settings={"listen": "1.2.3.4:5"})
    cluster.start(2)
    with pytest.raises(LocalError, match="is up already"):
        Cluster(cluster.directory).up()
    assert len(processes_of(cluster)) == 3


def test_who_is_held_up_amid_an_order_is_heard(cluster):
    """An order that arrives in pieces is answered, and no other client waits for it."""
    with control.connect(cluster.directory) as slow, control.connect(cluster.directory) as silent:
        slow.settimeout(PATIENCE_S)
        slow.sendall(b'{"do":')
        assert len(cluster.status()) == 3
        time.sleep(1.5)
        slow.sendall(b' "status"}\n')
        assert len(control.receive(slow)["nodes"]) == 3
        assert len(cluster.status()) == 3
        silent.close()
        assert len(cluster.status()) == 3


def until(holds) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_s
        time.sleep(0.02)


def test_everything_is_remembered(tmp_path):
    """After `down` no process runs; the same directory brings the same cluster back, and may make it larger."""
    base = neighbouring_ports(2)[0]  # No other test uses these ports while the nodes are down.
    first = Cluster(tmp_path, nodes=2, base_port=base, settings={"refresh_period": "200ms", "log_level": "debug"})
    with first:
        addresses, processes = first.addresses, processes_of(first)
    assert not any(lives(process) for process in processes)
    with pytest.raises(NotUp):
        first.status()
    assert [node.address for node in first.remembered()] == addresses
    with Cluster(tmp_path, nodes=3, settings={"log_level": ""}) as second:
        assert second.addresses[:2] == addresses
        assert len(second.addresses) == 3
    plan = json.loads((tmp_path / "cluster.json").read_text())
    assert plan["settings"] == {"refresh_period": "200ms", "cluster": second.name}
    with pytest.raises(LocalError, match="cannot shrink"):
        Cluster(tmp_path, nodes=1).up()
    assert not first.down()


def test_a_long_path_is_no_obstacle(tmp_path):
    """The path of the directory is longer than a socket's address can be."""
    place = tmp_path / ("long" * 30)
    with Cluster(place, nodes=1) as cluster:
        assert cluster.node(1).state == "ready"


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_ports_in_use(tmp_path, kind):
    """A requested port that TCP or UDP has in use is refused; a remembered one is replaced."""
    base = neighbouring_ports(2)[0]  # No other test uses these ports before this one does.
    with Cluster(tmp_path / "a", nodes=2, base_port=base) as cluster:
        assert cluster.addresses[0] == f"127.0.0.1:{base}"
    with socket.socket(type=kind) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", base))
        if kind == socket.SOCK_STREAM:
            other.listen()
        with pytest.raises(LocalError, match=rf"127\.0\.0\.1:{base} is in use"):
            Cluster(tmp_path / "b", nodes=2, base_port=base).up()
        with Cluster(tmp_path / "a") as cluster:
            assert f"127.0.0.1:{base}" not in cluster.addresses
            assert cluster.node(2).state == "ready"


def test_clusters_do_not_share_ports(tmp_path):
    """A node's port stays reserved while the node is down: neither another launcher nor a connection gets it."""
    with Cluster(tmp_path / "a", nodes=2) as first:
        first.kill(1)
        with Cluster(tmp_path / "b", nodes=2) as second:
            assert not set(first.addresses) & set(second.addresses)
        first.start(1)


def test_a_node_that_does_not_get_ready(tmp_path):
    """The error has the end of the log, no process is left, and the directory is free again."""
    (tmp_path / "n2").mkdir()
    (tmp_path / "n2" / "data").mkdir(mode=0o700)
    (tmp_path / "n2" / "data" / "NODE").write_text("nonsense")
    cluster = Cluster(tmp_path, nodes=3)
    with pytest.raises(NodeFailed, match=r"n2 ended with status 3; the end of .*/n2/log:\n    gossipkv: .*NODE"):
        cluster.up()
    with pytest.raises(NotUp):
        cluster.status()
    (tmp_path / "n2" / "data" / "NODE").unlink()
    with cluster:
        assert cluster.node(2).state == "ready"


def test_settings_are_checked_before_anything_starts(tmp_path):
    """A value that nodes would refuse is refused at once, and not remembered."""
    with pytest.raises(ConfigError, match="refresh_period = 'soon'"):
        Cluster(tmp_path, nodes=1, settings={"refresh_period": "soon"}).up()
    assert Cluster(tmp_path).remembered() == []


def test_what_the_system_refuses_is_told(tmp_path):
    """A node's directory that cannot be made fails the node; a plan that cannot be written fails the cluster."""
    (tmp_path / "n2").write_text("in the way")
    cluster = Cluster(tmp_path, nodes=2)
    with pytest.raises(NodeFailed, match=r"n2 could not be started \(.*/n2: File exists\)"):
        cluster.up()
    cluster.begin()
    try:
        cluster.wait_ready(1)
        with pytest.raises(LocalError, match=r"^\S*/n2: File exists$"):
            cluster.start(2)
        (tmp_path / "n2").unlink()
        assert cluster.start(2).error is None
    finally:
        cluster.down()
    (tmp_path / "cluster.json.new").mkdir()
    with pytest.raises(LocalError, match=r"cannot start the cluster: \S*/cluster\.json\.new: Is a directory"):
        cluster.up()
    assert (tmp_path / "supervisor.log").read_bytes() == b""


def test_an_unasked_end_is_an_error(tmp_path):
    """A node that died unexpectedly makes the block fail, unless its end was waited for."""
    cluster = Cluster(tmp_path, nodes=1)
    with ExitStack() as stack:
        stack.enter_context(cluster)
        os.kill(processes_of(cluster)[0], signal.SIGKILL)
        until(lambda: cluster.node(1).state == "ended")
        with pytest.raises(NodeFailed, match="n1 ended by SIGKILL"):
            stack.close()
    assert not is_up(cluster)
    with Cluster(tmp_path) as cluster:
        os.kill(processes_of(cluster)[0], signal.SIGKILL)
        assert cluster.wait_ended(1).failed


def test_nodes_more(tmp_path):
    """A node is added while others run, with its own settings, and is remembered."""
    with Cluster(tmp_path, nodes=1) as cluster:
        assert cluster.add(settings={"cluster": "other"}, called="stranger").name == "n2"
        with cluster.connect(2, timeout_ms=60_000) as client:
            assert (client.info()["cluster"], client.info()["node"]) == ("other", "stranger")
    with Cluster(tmp_path) as cluster:
        assert len(processes_of(cluster)) == 2


def test_killed_launcher_takes_its_nodes_along(tmp_path):
    """SIGKILL to `cluster up` ends supervisor and nodes, also a frozen node; the directory is usable again."""
    with up(tmp_path) as process:
        cluster = Cluster(tmp_path)
        nodes = processes_of(cluster)
        cluster.send(2, signal.SIGSTOP)
        process.kill()
        process.wait()
        await_end_of(*nodes)
    until(lambda: not is_up(cluster))
    with cluster:
        assert len(processes_of(cluster)) == 2


def is_up(cluster: Cluster) -> bool:
    try:
        cluster.status()
    except NotUp:
        return False
    return True


def test_killed_supervisor_takes_its_nodes_along(tmp_path):
    """After SIGKILL to the supervisor, its nodes are gone, also a frozen one, and the launcher reports the failure."""
    cluster = Cluster(tmp_path, nodes=2)
    cluster.up()
    nodes = processes_of(cluster)
    cluster.send(2, signal.SIGSTOP)
    os.kill(cluster.supervisor, signal.SIGKILL)
    await_end_of(*nodes)
    with pytest.raises(LocalError, match="supervisor failed"):
        cluster.status()
    assert not cluster.down()
    with cluster:
        assert len(processes_of(cluster)) == 2


def test_a_frozen_supervisor_is_ended(tmp_path, monkeypatch):
    """`down` kills a frozen supervisor by the process id behind the socket, and the nodes die with it."""
    monkeypatch.setattr(launcher, "END_TIMEOUT_S", 0.5)
    with Cluster(tmp_path, nodes=1) as cluster:
        nodes = processes_of(cluster)
        os.kill(cluster.supervisor, signal.SIGSTOP)
        assert cluster.down(grace_s=0)
        await_end_of(*nodes)


def test_a_cluster_whose_directory_is_removed(tmp_path):
    """The cluster ends, even if detached: no command could find it any more."""
    cluster = Cluster(tmp_path / "c")
    run("up", "--nodes", "1", "--detach", "--data", cluster.directory)
    processes = [cluster.supervisor, *processes_of(cluster)]
    shutil.rmtree(cluster.directory, ignore_errors=True)
    await_end_of(*processes)


def test_a_thread_may_start_a_cluster(tmp_path):
    """Nodes live as long as the process that started them, not as long as the thread."""
    cluster = Cluster(tmp_path, nodes=1)
    thread = threading.Thread(target=cluster.up)
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert cluster.node(1).state == "ready"
    cluster.down()


FORKING = """
import json, os, signal, sys, time
from pathlib import Path
from gossipkv.launcher import Cluster

cluster = Cluster(Path(sys.argv[1]), nodes=1)
nodes = [node.process for node in cluster.up()]
fork = os.fork()
if fork == 0:
    time.sleep(60)
    os._exit(0)
print(json.dumps([fork, *nodes]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_forked_child_does_not_hold_the_leash(tmp_path):
    """Forks that outlive the launcher, as a pool's workers may, keep no node alive."""
    with subprocess.Popen([sys.executable, "-c", FORKING, str(tmp_path)], stdout=subprocess.PIPE) as process:
        fork, *nodes = json.loads(process.stdout.readline())
        try:
            await_end_of(*nodes)
            assert lives(fork)
        finally:
            os.kill(fork, signal.SIGKILL)


@pytest.mark.parametrize(
    ("number", "ignoring"),
    [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, False)],
)
def test_interrupted_it_ends_all(tmp_path, number, ignoring):
    """Ctrl-C, SIGTERM and SIGHUP end every node cleanly, also if the shell ignores interrupts."""
    with up(tmp_path, ignoring_interrupts=ignoring) as process:
        nodes = processes_of(Cluster(tmp_path))
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 130
        assert not any(lives(node) for node in nodes)
        assert process.stderr.read() == ""
    for name in ("n1", "n2"):
        assert "stopped" in (tmp_path / name / "log").read_text()


def test_the_commands_from_another_shell(tmp_path):
    """A detached cluster outlives its launcher; status, kill, start and down find it by its directory."""
    place = ("--data", tmp_path)
    with ExitStack() as stack:
        out, err = run("up", "--nodes", "2", "--detach", *place)
        stack.callback(Cluster(tmp_path).down)
        assert err == ""
        assert "n2" in out
        assert f"`gossipkv cluster down --data {tmp_path}`" in out
        told = json.loads(run("status", "--json", *place)[0])
        assert [node["state"] for node in told["nodes"]] == ["ready", "ready"]
        assert told["up"]
        with Cluster(tmp_path).connect(timeout_ms=60_000) as client:
            assert client.info()["cluster"] == told["cluster"]
        assert f"cluster {told['cluster']}\n" in run("status", *place)[0]
        assert run("kill", "2", *place)[0] == "n2: ended by SIGKILL\n"
        assert "ended by SIGKILL" in run("status", *place)[0]
        assert run("start", "n2", *place)[0] == f"n2 is ready at {told['nodes'][1]['address']}\n"
        assert run("kill", "1", "--signal", "STOP", *place)[0] == "n1: SIGSTOP sent\n"
        assert "is running already" in run("start", "1", *place, status=3)[1]
        assert "no node 3" in run("kill", "3", *place, status=3)[1]
        assert "is up already" in run("up", *place, status=3)[1]
        assert run("down", *place) == ("", "")
    out, err = run("status", *place)
    assert "127.0.0.1" in out
    assert "is not up" in err
    assert not json.loads(run("status", "--json", *place)[0])["up"]
    assert "was not running" in run("down", *place)[1]
    assert "is not up" in run("kill", "1", *place, status=3)[1]


def test_up_says_ready_when_its_datasets_can_be_read(tmp_path):
    """`up` reports readiness once every node can read the datasets, and names a dataset that cannot be read."""
    part = tmp_path / "source" / "capitals" / "1" / "part-0"
    part.parent.mkdir(parents=True)
    part.write_text("peru\tLima\n")
    place = ["--data", tmp_path / "cluster"]
    try:
        out, err = run("up", "--detach", *place, "--source", tmp_path / "source", "--set", "time_to_converge=80s")
        is_said = "\nready in " in out
        assert is_said or " cannot be read yet at n" in err, "nodes that claim one place pause an eighth of that time"
        for node in Cluster(tmp_path / "cluster").status():
            with blocking.connect(node.address, timeout_ms=60_000) as client:
                assert not is_said or [each["version"] for each in client.databases()] == ["1"]
                assert client.dataset("capitals").get(b"peru") == b"Lima"
        run("down", *place)
        (tmp_path / "source" / "broken" / "1").mkdir(parents=True)
        (tmp_path / "source" / "broken" / "1" / "part-0").write_text("no key\n")
        out, err = run("up", "--detach", *place)
        assert "\nnodes are ready in " in out
        assert "gossipkv: broken cannot be read yet at n" in err
        assert "no TAB" in err
    finally:
        run("down", "--now", *place)


def test_the_foreground_tells_of_a_node_that_dies(tmp_path):
    """Standard error shows the end of the dead node's log, and later that another shell ended the cluster."""
    with up(tmp_path) as process:
        os.kill(processes_of(Cluster(tmp_path))[0], signal.SIGKILL)
        assert "n1 ended by SIGKILL; the end of" in process.stderr.readline()
        assert "ready" in process.stderr.readline()
        run("down", "--data", tmp_path)
        assert process.wait(PATIENCE_S) == 0
        assert "another command ended the cluster" in process.stderr.read()


def test_wrong_use(tmp_path):
    """Each misuse has a one-line error and a status."""
    place = ("--data", tmp_path)
    assert "no cluster in" in run("status", *place, status=3)[1]
    assert "number of a node" in run("kill", "first", *place, status=2)[1]
    assert "NAME=VALUE" in run("up", "--set", "cluster", *place, status=2)[1]
    assert "nearest known setting is" in run("up", "--set", "clustr=x", *place, status=2)[1]
    assert "name of a signal" in run("kill", "1", "--signal", "HELLO", *place, status=2)[1]
    assert "65" in run("up", "--nodes", "65", *place, status=2)[1]


def test_replication_is_remembered(tmp_path):
    run("up", "--nodes", "1", "--replication", "2", "--detach", "--data", tmp_path)
    run("down", "--data", tmp_path)
    assert json.loads((tmp_path / "cluster.json").read_text())["replication"] == 2
