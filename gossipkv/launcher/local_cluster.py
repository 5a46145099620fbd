"""`Cluster`: starts a cluster, waits until it is ready, reports on it, changes it, and ends it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, final

from gossipkv.client import blocking
from gossipkv.errors import LocalError
from gossipkv.launcher import control
from gossipkv.launcher.control import NotUp
from gossipkv.launcher.order import ClusterOrder, Place
from gossipkv.launcher.plan import load
from gossipkv.launcher.status import NodeFailed, NodeStatus
from gossipkv.processes.leash import Leash, braid, let_go
from gossipkv.processes.program import command, environment, order_line

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    OnWait = Callable[[list[NodeStatus]], None]

READY_TIMEOUT_S: Final = 60.0
READY_TIMEOUT_PER_NODE_S: Final = 4.0  # 64 nodes on two busy cores took 80 s.
GRACE_S: Final = 20.0  # Nodes have this long to answer requests in flight.
END_TIMEOUT_S: Final = 10.0  # Additional time of the supervisor.
POLL_S: Final = 0.02


@final
class Cluster:
    """A cluster of processes on this machine, whose files are in `directory`. Nodes are numbered from 1.

    As a context manager it is up and ready inside, and down afterwards. If this process dies, however that happens, so
    do the nodes. If a node ended unasked meanwhile, the exit raises `NodeFailed`.

    Threads: one at a time.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int | None = None,
        source: Path | str | None = None,
        replication: int | None = None,
        base_port: int | None = None,
        settings: Mapping[str, str] | None = None,
        places: Sequence[Place] = (),
        http: bool | None = None,
        http_base_port: int | None = None,
        resp_base_port: int | None = None,
        environ: Mapping[str, str] = os.environ,
        ready_timeout_s: float | None = None,
    ) -> None:
        """Set up a cluster; omitted values come from the directory, else: 3 nodes, no source, no HTTP, free ports.

        Args:
            directory: The directory of the cluster's files; made if missing.
            nodes: How many, 1 to 64; not fewer than the directory remembers.
            source: The source root of every node.
            replication: Copies of each partition of a dataset.
            base_port: The nodes have this port and those that follow; omitted: the first free ones from 7070 on.
            settings: Settings of every node, as text by their names (`docs/reference/settings.md`).
            places: Places of nodes that are not on 127.0.0.1.
            http: True if each node answers HTTP and shows its page.
            http_base_port: Like `base_port`, for HTTP; omitted: from 8080 on.
            resp_base_port: Like `base_port`, for RESP; omitted: as before, else no RESP.
            environ: The nodes' environment, including `GOSSIPKV_...` variables.
            ready_timeout_s: Seconds until a node that is not ready counts as failed; omitted: 60, and 4 for each.
        """
        self.directory = Path(directory).absolute()
        self._order = ClusterOrder(
            nodes=nodes,
            base_port=base_port,
            source=None if source is None else os.fspath(source),
            replication=replication,
            settings=dict(settings or {}),
            places=list(places),
            http=http,
            http_base_port=http_base_port,
            resp_base_port=resp_base_port,
        )
        self._environ = environ
        self._ready_timeout_s = ready_timeout_s
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._leash: int | None = None
        self._told: set[tuple[int, int]] = set()  # Ends of nodes that were reported to the caller.

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        nodes = []
        try:
            with contextlib.suppress(NotUp):  # The cluster may have been ended inside.
                nodes = self.status() if kind is None else []
        finally:
            self.down()
        for node in nodes:
            if node.failed and (node.index, node.log_from) not in self._told:
                raise NodeFailed.of(node)

    def up(self, *, detach: bool = False, on_wait: OnWait | None = None) -> list[NodeStatus]:
        """Start the cluster, and return when every node is ready; with `detach` it outlives this process.

        `on_wait` is called with the nodes repeatedly meanwhile.

        Raises:
            NodeFailed: a node did not get ready; nothing is left running.
            LocalError: the cluster is up already, a port is in use, or a setting is unknown.
        """
        self.begin(detach=detach)
        try:
            return self.wait_ready(on_wait=on_wait)
        except BaseException:
            self.down(grace_s=0)
            raise

    def begin(self, *, detach: bool = False) -> None:
        """Start the cluster without waiting for the nodes. Raises as `up`."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Reports errors of the order here, before a process starts.
        self._order.plan(load(self.directory), self._environ)
        leash = None if detach else braid()
        supervisor = None
        try:
            supervisor = self._spawn(leash)
            self._give_order(supervisor, leash)
            self._supervisor, self._leash = supervisor, None if leash is None else leash.held
        except BaseException:
            # The supervisor may not hold the directory, so the process that answers there may be another's.
            if supervisor is not None:
                supervisor.kill()
                with contextlib.suppress(BrokenPipeError), supervisor:  # Leaving the block closes the pipes, and waits.
                    pass
                self._supervisor = None
            if leash is not None:
                let_go(leash.held)
                self._leash = None
            raise

    def _spawn(self, leash: Leash | None) -> subprocess.Popen[bytes]:
        try:
            place = self.directory / "supervisor.log"
            place.touch(mode=0o600)
            with place.open("ab") as log:
                return subprocess.Popen(  # noqa: S603  # Our own module.
                    [*command("gossipkv.launcher.supervisor"), os.fspath(self.directory)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment(self._environ),
                    pass_fds=[] if leash is None else [leash.worn],
                    start_new_session=True,
                    umask=0o077,  # Keeps its socket, and the nodes' files, private.
                )
        finally:
            if leash is not None:
                os.close(leash.worn)

    def _give_order(self, supervisor: subprocess.Popen[bytes], leash: Leash | None) -> None:
        order = self._order if leash is None else dataclasses.replace(self._order, leash=leash.worn)
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        with contextlib.suppress(BrokenPipeError), supervisor.stdin as orders:
            orders.write(order_line(order))
        with supervisor.stdout as answers:
            line = answers.readline()
        reply = (
            json.loads(line) if line else {"error": f"its supervisor ended; see {self.directory / 'supervisor.log'}"}
        )
        if "error" in reply:
            supervisor.wait()
            raise LocalError(f"cannot start the cluster: {reply['error']}")

    def wait_ready(self, *indexes: int, on_wait: OnWait | None = None) -> list[NodeStatus]:
        """Return when these nodes, else all, are ready; `on_wait` is called with them repeatedly meanwhile.

        Raises:
            NodeFailed: a node has ended instead, or it took too long.
        """
        began_s = time.monotonic()
        while True:
            nodes = [node for node in self.status() if node.index in indexes or not indexes]
            for node in nodes:
                if node.state == "ended":
                    self._told.add((node.index, node.log_from))
                    raise NodeFailed.of(node)
            waiting = [node for node in nodes if node.state == "starting"]
            if not waiting:
                return nodes
            allowed_s = self._ready_timeout_s or READY_TIMEOUT_S + READY_TIMEOUT_PER_NODE_S * len(nodes)
            if time.monotonic() - began_s > allowed_s:
                names = ", ".join(node.name for node in waiting)
                raise NodeFailed.of(waiting[0], f"{names} did not become ready within {allowed_s:.0f} s")
            if on_wait is not None:
                on_wait(nodes)
            time.sleep(POLL_S)

    def wait_ended(self, index: int) -> NodeStatus:
        """Return when a node has ended, by itself or not; its end then counts as no failure of the cluster.

        Raises:
            LocalError: it took too long.
        """
        give_up_s = time.monotonic() + GRACE_S + END_TIMEOUT_S
        while (node := self.node(index)).state != "ended":
            if time.monotonic() > give_up_s:
                raise LocalError(
                    f"{node.name} (process {node.process}) did not end within {GRACE_S + END_TIMEOUT_S:.0f} s",
                    {"node": index},
                )
            time.sleep(POLL_S)
        self._told.add((index, node.log_from))
        return node

    def status(self) -> list[NodeStatus]:
        """Return every node, in the order of their numbers.

        Raises:
            NotUp: the cluster is not up; see `remembered`.
            LocalError: its supervisor has failed, or does not answer.
        """
        try:
            return control.ask(self.directory, {"do": "status"})
        except NotUp:
            if self._supervisor is not None and self._supervisor.wait() != 0:
                log = self.directory / "supervisor.log"
                raise LocalError(f"the cluster's supervisor failed, and its nodes ended with it; see {log}") from None
            raise

    def remembered(self) -> list[NodeStatus]:
        """Return the nodes of a cluster that is not up; empty: there is no cluster in the directory."""
        plan = load(self.directory)
        return [
            NodeStatus(
                node.index,
                node.name,
                str(node.address),
                "ended",
                data=str(self.directory / node.name / "data"),
                log=str(self.directory / node.name / "log"),
                http=None if node.http is None else str(node.http),
            )
            for node in (() if plan is None else plan.nodes)
        ]

    @property
    def name(self) -> str | None:
        """The cluster's name in its plan; None: nodes take it from their environment."""
        plan = load(self.directory)
        return None if plan is None else plan.settings.get("cluster")

    @property
    def supervisor(self) -> int:
        """The parent process of the nodes.

        Raises:
            NotUp: there is no supervisor.
        """
        with control.connect(self.directory) as connection:
            return control.peer(connection)

    def node(self, index: int) -> NodeStatus:
        """Return the node of that number.

        Raises:
            LocalError: there is no such node.
        """
        for node in self.status():
            if node.index == index:
                return node
        raise LocalError(f"there is no node {index}", {"node": index})

    @property
    def addresses(self) -> list[str]:
        """The addresses of all nodes in order, each with its port."""
        return [node.address for node in self.status()]

    def connect(self, *indexes: int, timeout_ms: int = 1000) -> blocking.Client:
        """Return a client that asks these nodes and no other, else all. Raises as `gossipkv.blocking.connect`."""
        asked = [node.address for node in self.status() if node.index in indexes or not indexes]
        return blocking.Client(asked, timeout_ms=timeout_ms, follows=not indexes).dial()

    def log(self, index: int) -> str:
        """Return the whole log of a node."""
        return Path(self.node(index).log).read_text(errors="replace")

    def send(self, index: int, number: int) -> NodeStatus:
        """Send a signal to a running node; returns without waiting for its effect.

        Raises:
            LocalError: it does not run, or there is no such node.
        """
        return self._one(index, {"do": "kill", "node": index, "signal": int(number)})

    def kill(self, index: int) -> NodeStatus:
        """Send SIGKILL, and wait for the end. Raises as `send` and `wait_ended`."""
        self.send(index, signal.SIGKILL)
        return self.wait_ended(index)

    def stop(self, index: int) -> NodeStatus:
        """Send SIGTERM, and wait for the end. Raises as `send` and `wait_ended`."""
        self.send(index, signal.SIGTERM)
        return self.wait_ended(index)

    def start(
        self,
        index: int,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> NodeStatus:
        """Start a node that has ended; from now on with other settings or another port (0: any free one).

        Raises:
            LocalError: it runs, there is no such node, or the port is in use.
            NodeFailed: it did not get ready.
        """
        node = self._one(index, {"do": "start", "node": index, "settings": dict(settings or {}), "port": port})
        return self.wait_ready(index)[0] if wait else node

    def add(
        self, *, port: int = 0, settings: Mapping[str, str] | None = None, called: str = "", wait: bool = True
    ) -> NodeStatus:
        """Start one more node; `called` is its name for the others, if that differs from its own.

        Raises as `start`.
        """
        request = {"do": "add", "settings": dict(settings or {}), "port": port, "called": called}
        node = control.ask(self.directory, request)[-1]
        return self.wait_ready(node.index)[0] if wait else node

    def down(self, *, grace_s: float = GRACE_S) -> bool:
        """End all nodes: SIGTERM, and SIGKILL for those left after `grace_s`; returns False if the cluster was not up.

        A cluster that was started here and has ended was not up, even if another one was started in its directory.
        """
        try:
            with control.connect(self.directory) as connection:
                if self._supervisor is not None and control.peer(connection) != self._supervisor.pid:
                    return False
                self._await_end(connection, grace_s)
        except NotUp:
            return False
        except BaseException:
            if self._supervisor is not None and self._leash is None:
                self._supervisor.kill()  # No leash ends it, and it may not have been told to end.
            raise
        finally:
            self._let_go()
            if self._supervisor is not None:
                self._supervisor.wait()
                self._supervisor = None
        return True

    def _await_end(self, connection: socket.socket, grace_s: float) -> None:
        connection.settimeout(grace_s + END_TIMEOUT_S)
        try:
            control.send(connection, {"do": "down", "grace_s": grace_s})
            control.receive(connection)
        except ConnectionError:
            pass  # The supervisor is ending already.
        except TimeoutError:  # It is stopped, or hangs; its nodes die with it.
            os.kill(control.peer(connection), signal.SIGKILL)
            connection.settimeout(None)
            with contextlib.suppress(ConnectionError):
                control.receive(connection)

    def _let_go(self) -> None:
        if self._leash is not None:
            let_go(self._leash)
            self._leash = None

    def _one(self, index: int, request: control.Message) -> NodeStatus:
        return next(node for node in control.ask(self.directory, request) if node.index == index)
