"""The parent process of a cluster's nodes: `python -m gossipkv.launcher.supervisor DIR`.

It starts the nodes, reports their state, obeys `gossipkv.launcher.control`, and ends with them. It has its own session,
so Ctrl-C in a terminal reaches only the launcher. As a process of its own it lets a cluster outlive its launcher
(`--detach`), and `start` work from another shell.

    standard input    one line: the order (`gossipkv.launcher.order`)
    standard output   one line of JSON: {} when it obeys, else {"error": "..."}
    its leash         a descriptor named in the order: if the launcher is gone, all nodes are killed
    the nodes' leash  the kernel kills each node when this process is gone, however that ended

One thread runs one loop, which reacts to bytes and signals and never blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import DirectoryInUse, GossipKVError
from gossipkv.launcher import control
from gossipkv.launcher.fleet import NodeFleet
from gossipkv.launcher.order import ClusterOrder
from gossipkv.launcher.plan import load
from gossipkv.launcher.status import reason
from gossipkv.processes.program import read_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.launcher.node_child import NodeProcess

LOCK: Final = "lock"
GRACE_S: Final = 20.0  # If a signal ends the cluster, nodes have this long to answer requests in flight.
ANSWER_TIMEOUT_S: Final = 1.0  # The caller, or a socket's buffer, takes an answer at once.
ACCEPT_PAUSE_S: Final = 0.1
LOOK_PERIOD_S: Final = 5.0  # Period of checks that the directory still exists.
ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@final
class ClusterSupervisor:
    """The loop: handles requests, signals, and output of the nodes."""

    def __init__(self, directory: Path, fleet: NodeFleet, *, lock: int, leash: int | None) -> None:
        self._directory = directory
        self._lock = lock
        self._fleet = fleet
        self._leash = leash
        self._selector = selectors.DefaultSelector()
        self._listener = control.listen(directory)
        self._signals, self._signalled = socket.socketpair()
        self._waiting: list[socket.socket] = []  # Connections that wait for the end, which is their answer.
        self._ends = False
        self._kill_at_s = math.inf

    def prepare(self) -> None:
        """Handle signals and requests from now on."""
        self._signals.settimeout(0)
        self._signalled.settimeout(0)
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        # Includes signals that a shell's background jobs ignore, since nodes would inherit that.
        for number in (*ENDING, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self._watch(self._signals, self._heed)
        self._watch(self._listener, self._accept)
        if self._leash is not None:
            self._watch(self._leash, self._let_go)

    def run(self) -> None:
        """Start the nodes, and run until they have been ended."""
        while not self._ends or self._fleet.runs:
            if self._fleet.has_waiting and (child := self._fleet.start_next()) is not None:
                self._attend(child)
            for key, _ in self._selector.select(self._wait_s()):
                key.data()
            self._fleet.look()
            if not self._ends and os.fstat(self._lock).st_nlink == 0:
                self._end(GRACE_S)  # The directory is gone, so nobody can reach this process any more.
            if time.monotonic() >= self._kill_at_s:
                self._kill_at_s = math.inf
                self._fleet.send_all(signal.SIGKILL)

    def _wait_s(self) -> float:
        if self._fleet.has_waiting:
            return 0.0
        return min(LOOK_PERIOD_S, max(0.0, self._kill_at_s - time.monotonic()))

    def close(self) -> None:
        """Answer the connections that wait for the end."""
        for connection in self._waiting:
            connection.close()

    def _watch(self, source: socket.socket | int, act: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, act)

    def _attend(self, child: NodeProcess) -> None:

        def hear() -> None:
            if not child.hear():
                self._selector.unregister(child.output)
                child.output.close()

        self._selector.register(child.output, selectors.EVENT_READ, hear)

    def _heed(self) -> None:
        for number in self._signals.recv(1 << 12):
            if number in ENDING:
                self._end(0.0 if self._ends else GRACE_S)

    def _let_go(self) -> None:
        """End at once, since the launcher is gone, and nobody waits for an orderly end."""
        assert self._leash is not None
        self._selector.unregister(self._leash)
        self._end(0.0)

    def _end(self, grace_s: float) -> None:
        self._ends = True
        self._kill_at_s = time.monotonic() + grace_s
        self._fleet.send_all(signal.SIGTERM)

    def _accept(self) -> None:
        """Accept a connection and read its request until it is complete; the sender may pause within it."""
        try:
            connection, _ = self._listener.accept()
        except OSError:  # No descriptor is free. The pause avoids a busy loop until the next attempt.
            time.sleep(ACCEPT_PAUSE_S)
            return
        connection.settimeout(0)
        received = bytearray()

        def hear() -> None:
            try:
                part = connection.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:
                part = b""
            received.extend(part)
            if part and not part.endswith(b"\n"):
                return
            self._selector.unregister(connection)
            if part:
                self._obey(connection, bytes(received))
            else:  # The sender has gone.
                connection.close()

        self._watch(connection, hear)

    def _obey(self, connection: socket.socket, received: bytes) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            connection.settimeout(ANSWER_TIMEOUT_S)
            try:
                request = control.understand(received)
                if request["do"] == "down":
                    grace_s = float(str(request["grace_s"]))
                    if not grace_s >= 0:
                        return
                    self._end(grace_s)
                    self._waiting.append(connection)
                    stack.pop_all()
                    return
                control.send(connection, self._answer(request))
            except (OSError, ValueError, KeyError):
                return  # The sender has gone, or speaks another protocol.

    def _answer(self, request: control.Message) -> control.Message:
        try:
            match request:
                case {"do": "start" | "add"} if self._ends:  # Nobody would tell the new node to end.
                    return {"error": f"the cluster in {self._directory} is ending, so no node can start"}
                case {"do": "start", "node": int(index), "settings": dict(settings), "port": int() | None as port}:
                    self._attend(self._fleet.start(index, settings=settings, port=port))
                case {"do": "add", "settings": dict(settings), "port": int(port), "called": str(called)}:
                    self._attend(self._fleet.add(settings=settings, port=port, called=called))
                case {"do": "kill", "node": int(index), "signal": int(number)}:
                    self._fleet.send(index, number)
                case {"do": "status"}:
                    pass
                case _:
                    return {"error": f"the supervisor received an unknown request: {request}"}
        except GossipKVError as error:
            return {"error": str(error)}
        except OSError as error:
            return {"error": reason(error, self._directory)}
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            return {"error": f"the supervisor received an invalid request: {request}: {error}"}
        return {"process": os.getpid(), "nodes": self._fleet.status()}


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[int]:
    """Hold the directory's lock, by a descriptor; a killed holder releases it.

    Raises:
        DirectoryInUse: another process holds it.
    """
    with (directory / LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            words = f"the cluster in {directory} is up already; end it with {control.command('down', directory)}"
            raise DirectoryInUse(words, {"directory": os.fspath(directory)}) from None
        yield lock.fileno()


def main() -> int:
    """Run the cluster ordered on standard input; returns 0 when it has ended as told, 1 if it could not start."""
    directory = Path(sys.argv[1])
    line = sys.stdin.buffer.readline()
    if not line:
        return 1  # The launcher was interrupted.
    order = read_order(line, ClusterOrder)
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(locked(directory))
            plan = order.plan(load(directory))
            fleet = NodeFleet(directory, plan, base_port=order.base_port, http_base_port=order.http_base_port)
            supervisor = ClusterSupervisor(directory, fleet, lock=lock, leash=order.leash)
            supervisor.prepare()
        except (GossipKVError, OSError) as error:
            _say({"error": reason(error, directory) if isinstance(error, OSError) else str(error)})
            return 1
        is_held = _say({}) or order.leash is not None
        if is_held:
            supervisor.run()
        (directory / control.SOCKET).unlink(missing_ok=True)
    supervisor.close()  # The lock must be free first, since a waiting launcher may start again at once.
    return 0 if is_held else 1


def _say(reply: control.Message) -> bool:
    """Write a reply; returns False if the launcher has gone."""
    try:
        os.write(sys.stdout.fileno(), json.dumps(reply).encode() + b"\n")
    except BrokenPipeError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
