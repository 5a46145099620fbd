"""The nodes of one cluster: their plan, ports, and processes."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, final

from gossipkv.address import Address
from gossipkv.errors import LocalError
from gossipkv.launcher import ports
from gossipkv.launcher.node_child import ENDED, STARTING, NodeProcess
from gossipkv.launcher.plan import HOST, MAX_NODES, ClusterPlan, NodePlan, check_names, merge
from gossipkv.launcher.status import reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gossipkv.launcher.control import Message
    from gossipkv.launcher.ports import Reservation


@final
class NodeFleet:
    """Starts and signals the nodes; waits for nothing. Requires: the directory's lock is held."""

    def __init__(
        self, directory: Path, plan: ClusterPlan, *, base_port: int | None, http_base_port: int | None = None
    ) -> None:
        self._directory = directory
        self._plan = plan
        self._reservations: dict[int, Reservation] = {}
        self._http_reservations: dict[int, Reservation] = {}
        self._children: dict[int, NodeProcess] = {}
        self._failures: dict[int, str] = {}  # Reasons for which nodes of the plan could not be started.
        try:
            self._choose_ports(base_port)
            self._choose_http_ports(http_base_port)
        except BaseException:
            for reservation in (*self._reservations.values(), *self._http_reservations.values()):
                reservation.close()
            raise
        self._waiting = [node.index for node in self._plan.nodes]
        self._plan.save(directory)

    @property
    def runs(self) -> bool:
        """True if any node has not ended yet."""
        return any(child.runs for child in self._children.values())

    @property
    def has_waiting(self) -> bool:
        """True if a node of the plan was not started yet."""
        return bool(self._waiting)

    def start_next(self) -> NodeProcess | None:
        """Start the next node of the plan: one at a time, since each takes a busy machine a fraction of a second.

        Returns None if it could not be started, as its status tells; the others go on.
        """
        node = self._plan.node(self._waiting.pop(0))
        try:
            return self._start(node)
        except OSError as error:
            self._failures[node.index] = reason(error, self._directory / node.name)
            return None

    def start(self, index: int, *, settings: Mapping[str, str], port: int | None) -> NodeProcess:
        """Start a node that has ended; from now on with other settings or another port (0: any free one).

        Raises:
            LocalError: it runs, there is no such node, or the port is in use.
        """
        node = self._plan.node(index)
        if index in self._waiting:
            raise LocalError(f"{node.name} is about to start already")
        if index in self._children and self._children[index].runs:
            raise LocalError(f"{node.name} is running already (process {self._children[index].process})")
        check_names(settings)
        self._plan.check(dataclasses.replace(node, settings=merge(node.settings, settings)))
        if port is not None:
            self._move(node, port)
        self._replace(dataclasses.replace(self._plan.node(index), settings=merge(node.settings, settings)))
        return self._start(self._plan.node(index))

    def add(self, *, settings: Mapping[str, str], port: int, called: str) -> NodeProcess:
        """Start one more node.

        Raises:
            LocalError: there are as many as one machine carries, or the port is in use.
        """
        index = len(self._plan.nodes) + 1
        if index > MAX_NODES:
            raise LocalError(f"a cluster on one machine has at most {MAX_NODES} nodes")
        check_names(settings)
        node = NodePlan(index, 0, called=called, settings=merge({}, settings))
        self._plan.check(node)
        self._move(node, port)
        self._choose_http_ports(None)
        self._plan.save(self._directory)
        return self._start(self._plan.node(index))

    def send(self, index: int, number: int) -> None:
        """Send a signal to a node, unless it has ended.

        Raises:
            LocalError: there is no such node.
        """
        self._plan.node(index)
        if index in self._children:
            self._children[index].send(number)

    def send_all(self, number: int) -> None:
        """Send a signal to every node; nodes that wait to be started are not started."""
        self._waiting.clear()
        for child in self._children.values():
            child.send(number)

    def look(self) -> None:
        """Look for nodes that are ready or have ended."""
        for child in self._children.values():
            child.reap()
        first = self._plan.nodes[0].index
        if not self._plan.formed and first in self._children and self._children[first].is_ready:
            self._plan = dataclasses.replace(self._plan, formed=True)
            with contextlib.suppress(OSError):  # A full disk is no reason to end; the next start joins the first node.
                self._plan.save(self._directory)

    def status(self) -> list[Message]:
        """Return the status of every node, for `gossipkv.launcher.control`."""
        return [self._status(node) for node in self._plan.nodes]

    def _status(self, node: NodePlan) -> Message:
        child = self._children.get(node.index)
        runs = child is not None and child.runs
        absent = STARTING if node.index in self._waiting else ENDED
        return {
            "index": node.index,
            "name": node.name,
            "address": str(node.address),
            "state": absent if child is None else child.state,
            "process": child.process if child is not None and runs else None,
            "uptime_s": round(child.uptime_s, 3) if child is not None and runs else None,
            "exit_status": None if child is None else child.ended,
            "error": self._failures.get(node.index),
            "asked": node.index not in self._failures if child is None else child.is_asked,
            "data": str(self._directory / node.name / "data"),
            "log": str(self._directory / node.name / "log"),
            "log_from": 0 if child is None else child.log_from,
            "http": None if node.http is None else str(node.http),
        }

    def _start(self, node: NodePlan) -> NodeProcess:
        place = self._directory / node.name
        place.mkdir(exist_ok=True)
        child = NodeProcess(self._plan.command(self._directory, node.index), place / "log")
        self._children[node.index] = child
        self._failures.pop(node.index, None)
        return child

    def _choose_ports(self, base_port: int | None) -> None:
        """Choose remembered ports that are still free, and others for the remaining nodes.

        A wrapper may lead into another network, whose ports cannot be checked here.
        """
        here = [node for node in self._plan.nodes if not node.wrapper]
        if base_port is not None:
            chosen = ports.choose(HOST, len(here), base_port=base_port, taken=set())
            for node, (port, held) in zip(here, chosen.items(), strict=True):
                self._take(node, port, held)
            return
        for node in here:
            is_free = node.port and self._sibling(node, node.port, among=here[: here.index(node)]) is None
            reservation = ports.reserve(node.host, node.port) if is_free else None
            self._take(node, 0 if reservation is None else node.port, reservation)
        for node in here:
            if not self._plan.node(node.index).port:
                self._move(node, 0)

    def _choose_http_ports(self, base_port: int | None) -> None:
        """Choose an HTTP port for each node without a reserved one; nodes behind a wrapper have none.

        The order of choice: exactly from `base_port` on, else remembered free ports, else the first free ones.
        """
        if not self._plan.http:
            for node in self._plan.nodes:
                self._plan = self._plan.with_node(dataclasses.replace(node, http_port=0))
            return
        here = [node for node in self._plan.nodes if not node.wrapper and node.index not in self._http_reservations]
        # The ports of the rest are chosen anew.
        kept = [node for node in self._plan.nodes if base_port is None or node not in here]
        taken = {node.port for node in self._plan.nodes} | {node.http_port for node in kept}
        if base_port is None:
            for node in here:
                held = ports.reserve(node.host, node.http_port) if node.http_port else None
                if held is not None:
                    self._take_for_http(node, node.http_port, held)
            here = [node for node in here if node.index not in self._http_reservations]
        for number, node in enumerate(here):
            exactly = None if base_port is None else base_port + number
            if exactly in taken:
                where = Address(node.host, exactly)
                raise LocalError(
                    f"{where} is already the port of a node; choose another --http-base-port", {"port": exactly}
                )
            chosen = ports.choose(
                node.host,
                1,
                base_port=exactly,
                taken=set() if exactly else taken,
                flag="--http-base-port",
                usual=ports.DEFAULT_HTTP_BASE_PORT,
            )
            for port, held in chosen.items():
                self._take_for_http(node, port, held)
                taken.add(port)

    def _take_for_http(self, node: NodePlan, port: int, reservation: Reservation) -> None:
        self._http_reservations[node.index] = reservation
        self._plan = self._plan.with_node(dataclasses.replace(self._plan.node(node.index), http_port=port))

    def _move(self, node: NodePlan, port: int) -> None:
        """Give a node another port, and remember it; 0: any free one."""
        if port == node.port and node.index in self._reservations:
            return
        siblings = [other for other in self._plan.nodes if other.index != node.index]
        if port and (sibling := self._sibling(node, port, among=siblings)) is not None:
            where = Address(node.host, port)
            raise LocalError(f"{where} is already the port of {sibling.name}; choose another --port", {"port": port})
        taken = {port for other in self._plan.nodes for port in (other.port, other.http_port)}
        chosen = ports.choose(node.host, 1, base_port=port or None, taken=set() if port else taken, flag="--port")
        for number, reservation in chosen.items():
            self._take(node, number, reservation)
        self._plan.save(self._directory)

    @staticmethod
    def _sibling(node: NodePlan, port: int, *, among: Sequence[NodePlan]) -> NodePlan | None:
        """Return the node with that port on the same host, or None; a wrapper means another host."""
        for other in among:
            if (other.host, other.wrapper) == (node.host, node.wrapper) and port in {other.port, other.http_port}:
                return other
        return None

    def _take(self, node: NodePlan, port: int, reservation: Reservation | None) -> None:
        if (old := self._reservations.pop(node.index, None)) is not None:
            old.close()
        if reservation is not None:
            self._reservations[node.index] = reservation
        self._plan = self._plan.with_node(dataclasses.replace(node, port=port))

    def _replace(self, node: NodePlan) -> None:
        self._plan = self._plan.with_node(node)
        self._plan.save(self._directory)
