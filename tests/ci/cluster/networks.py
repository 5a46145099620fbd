"""A network of namespaces on this machine: a machine per node, a switch between them, cuts and loss by nftables.

Without nftables a node can still *miss* another: its packets to that node go to a machine that does not exist.

    switch   a user namespace and a network namespace; the bridge; 10.77.0.254, from which the tests ask
    n1 ...   a network namespace each; 10.77.0.1 ..., an end of a veth pair whose other end is on the bridge

No privilege is needed if users may create namespaces. Only `whole` machines, which have files and a hostname of their
own and all users of this machine, need root. Each namespace lives as long as a process that reads a pipe of the tests,
so nothing is left behind, even if the tests crash.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from gossipkv.launcher import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

PORT = 7070
SWITCH = "10.77.0.254"
NODES = "10.77.0.0/25"  # The addresses of all nodes, without the switch.
NOBODY = "02:00:00:00:00:fe"  # No machine has this Ethernet address.
PATIENCE_S = 300  # While the kernel removes other namespaces, it delays each change of a network.

ASKING = """
import json, sys
from gossipkv.client import blocking
from gossipkv.errors import GossipKVError

clients = {}
for line in sys.stdin:
    address, method, *params = json.loads(line)
    try:
        if address not in clients:
            clients[address] = blocking.Client([address], timeout_ms=30000, follows=False).dial()
        reply = {"result": clients[address].call(method, *params)}
    except GossipKVError as error:
        clients.pop(address, None)
        reply = {"error": str(error)}
    print(json.dumps(reply, default=lambda value: value.decode(errors="backslashreplace")), flush=True)
"""


def missing(*, rules: bool = True, whole: bool = False) -> str | None:
    """Return why this machine cannot make such a network, or None; `rules`: packets are filtered by rules."""
    for tool in ("unshare", "nsenter", "ip", *(["nft"] if rules else []), *(["setpriv"] if whole else [])):
        if shutil.which(tool, path=PATH) is None:
            return f"there is no {tool}"
    try:
        with Network(1, whole=whole) as network:
            if rules:
                network.rule(1, "input", "counter")
    except (subprocess.CalledProcessError, RuntimeError) as error:
        return f"network namespaces cannot be made: {error}"
    return None


PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class Network:
    """A number of machines that reach each other, for the duration of the block."""

    def __init__(self, nodes: int, *, whole: bool = False) -> None:
        self._whole = whole
        self._stack = ExitStack()
        self._count = nodes
        self._switch: list[str] = []
        self._machines: dict[int, list[str]] = {}
        self._asking: subprocess.Popen[str] | None = None
        self._ruled: set[int] = set()
        self._missed: set[tuple[int, int]] = set()

    def __enter__(self) -> Self:
        with self._stack:
            self._switch = self._namespace([], *([] if self._whole else ["--user", "--map-root-user"]), "--net")
            links = ["link set lo up", "link add bridge type bridge", f"addr add {SWITCH}/24 dev bridge"]
            for node in range(1, self._count + 1):
                self._machines[node] = self._namespace(
                    self._switch, "--net", *(["--mount", "--uts"] if self._whole else [])
                )
                process = self._machines[node][2]
                links += [
                    f"link add v{node} type veth peer name wire netns {process}",
                    f"link set v{node} master bridge up",
                ]
            self._ip(self._switch, [*links, "link set bridge up"])
            for node, machine in self._machines.items():
                self._ip(machine, ["link set lo up", f"addr add {address(node)}/24 dev wire", "link set wire up"])
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _namespace(self, inside: list[str], *kinds: str) -> list[str]:
        command = [*inside, "unshare", *kinds, "sh", "-c", "echo made; exec cat"]
        holder = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": PATH},
        )
        self._stack.callback(holder.communicate)
        if holder.stdout.readline() != "made\n":
            raise RuntimeError(holder.stderr.read().strip())
        entered = [kind for kind in kinds if kind not in {"--user", "--map-root-user"}]
        user = [] if self._whole else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(holder.pid), *user, *entered]

    @staticmethod
    def _ip(inside: list[str], commands: list[str]) -> None:
        _run([*inside, "ip", "-batch", "-"], "\n".join(commands))

    def places(self) -> list[Place]:
        return [Place(address(node), PORT, wrapper) for node, wrapper in self._machines.items()]

    def ask(self, node: int, method: str, *params: object) -> object:
        """Ask a node on the wire and return its answer; the switch reaches all nodes, whatever is cut between them.

        Raises:
            ConnectionError: The node does not answer, or answers with an error.
        """
        if self._asking is None:
            command = [*self._switch, sys.executable, "-c", ASKING]
            self._asking = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._stack.callback(self._asking.communicate)
        self._asking.stdin.write(json.dumps([f"{address(node)}:{PORT}", method, *params]) + "\n")
        self._asking.stdin.flush()
        reply = json.loads(self._asking.stdout.readline())
        if "error" in reply:
            raise ConnectionError(reply["error"])
        return reply["result"]

    def command_at(self, node: int, *command: str) -> list[str]:
        return [*self._machines[node], *command]

    def command_at_switch(self, *command: str) -> list[str]:
        """Return a command that runs at the switch."""
        return [*self._switch, *command]

    def rule(self, node: int, chain: str, rule: str) -> None:
        """Add a rule for packets that come into (`input`) or leave (`output`) a node."""
        self._ruled.add(node)
        self._nft(
            node,
            "add table inet cuts;"
            "add chain inet cuts input { type filter hook input priority 0; };"
            "add chain inet cuts output { type filter hook output priority 0; };"
            f"add rule inet cuts {chain} {rule}",
        )

    def heal(self, *nodes: int) -> int:
        """Remove rules and missed peers of these nodes, by default all; return how many packets the rules dropped."""
        dropped = 0
        for node in self._ruled & set(nodes or self._machines):
            dropped += self._dropped(node)
            self._nft(node, "delete table inet cuts")
            self._ruled.discard(node)
        for node, other in [missed for missed in self._missed if not nodes or missed[0] in nodes]:
            self._ip(self._machines[node], [f"neigh del {address(other)} dev wire"])
            self._missed.discard((node, other))
        return dropped

    def miss(self, some: Iterable[int], others: Iterable[int]) -> None:
        """Drop packets from `some` to `others`, but not in the other direction; no rule is needed."""
        missed = {(node, other) for node in some for other in others if node != other}
        for node, other in missed:
            self._ip(self._machines[node], [f"neigh replace {address(other)} lladdr {NOBODY} nud permanent dev wire"])
        self._missed |= missed

    def cut(self, some: Iterable[int], others: Iterable[int], *, one_way: bool = False, what: str = "") -> None:
        """Drop packets from `some` to `others`, and back unless `one_way`; `what` filters, as `meta l4proto udp`."""
        there = "{ " + ", ".join(address(node) for node in others) + " }"
        for node in some:
            self.rule(node, "output", f"ip daddr {there} {what} counter drop")
            if not one_way:
                self.rule(node, "input", f"ip saddr {there} {what} counter drop")

    def lose(self, percent: int) -> None:
        for node in self._machines:
            self.rule(node, "input", f"ip saddr {NODES} numgen random mod 100 < {percent} counter drop")

    def _nft(self, node: int, commands: str) -> None:
        _run([*self._machines[node], "nft", "-f", "-"], commands)

    def _dropped(self, node: int) -> int:
        ruleset = _run([*self._machines[node], "nft", "-j", "list", "ruleset"])
        rules = [entry["rule"] for entry in json.loads(ruleset)["nftables"] if "rule" in entry]
        return sum(part["counter"]["packets"] for rule in rules for part in rule["expr"] if "counter" in part)


def _run(command: list[str], words: str = "") -> str:
    done = subprocess.run(
        command, check=True, input=words, capture_output=True, text=True, timeout=PATIENCE_S, env={"PATH": PATH}
    )
    return done.stdout


def address(node: int) -> str:
    return f"10.77.0.{node}"
