"""What a cluster's directory remembers: its nodes, their addresses, and what they are started with.

    DIR/cluster.json   this, for whoever starts the cluster again
    DIR/lock           held while a supervisor runs: the truth about whether the cluster is up
    DIR/control        the socket that the supervisor is told what to do at
    DIR/supervisor.log
    DIR/n1/log         standard error of the node, all its starts
    DIR/n1/data        its data directory

No process ids stand here: a number that is remembered may be another's by the time it is used.  Only the supervisor,
whose children the nodes are, knows them.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

from gossipkv.address import Address, parse_address
from gossipkv.environment import small_file
from gossipkv.errors import ConfigError, Corrupt, LocalError, UnsupportedFormat
from gossipkv.processes.program import command
from gossipkv.settings import config
from gossipkv.settings.databases import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DOCUMENT: Final = "cluster.json"
PLAN_FILE: Final = small_file.Kind("plan of a cluster", 16 << 20, is_private=False)
FORMAT: Final = 1
MAX_NODES: Final = 64  # About what one machine carries: a node takes some 50 MB.
HOST: Final = "127.0.0.1"
SEEDS: Final = 3  # A restarted node finds the others although two of them are down.

# Said by the launcher; no setting of a node may say otherwise.
_BY_NODE: Final = "is chosen by the launcher for each node"
CHOSEN: Final = {
    "data": _BY_NODE,
    "listen": _BY_NODE,
    "http_listen": f"{_BY_NODE}: use --http or --no-http",
    "join": _BY_NODE,
    "node": _BY_NODE,
    "source": "is the whole cluster's: use --source",
    "replication": "is the whole cluster's: use --replication",
}
# Nothing here is far away; and an address that the environment says is that of one node at most.
_USUAL: Final = {"profile": "local", "time_to_converge": "3s", "advertise": "as listen"}


@final
@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node."""

    index: int  # From 1.
    port: int
    host: str = HOST
    settings: dict[str, str] = field(default_factory=dict)  # Besides those of the cluster, and before them.
    wrapper: list[str] = field(default_factory=list)  # A command that becomes the node's, as `nsenter` does.

    called: str = ""  # By the other nodes, when that is not its own name.
    http_port: int = 0  # None, in a cluster without HTTP.

    @property
    def name(self) -> str:
        """Its own: `n1`."""
        return f"n{self.index}"

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address(self.host, self.port)

    @property
    def http(self) -> Address | None:
        """Where it answers HTTP, if it does."""
        return Address(self.host, self.http_port) if self.http_port else None


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """The whole cluster."""

    nodes: list[NodePlan]
    source: str | None = None
    replication: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    formed: bool = False  # Whether the first node has been ready once.
    http: bool = False  # Whether nodes answer HTTP.

    def node(self, index: int) -> NodePlan:
        """The node of that number.

        Raises:
            LocalError: there is none.
        """
        for node in self.nodes:
            if node.index == index:
                return node
        raise LocalError(f"there is no node {index}: the cluster has 1 to {len(self.nodes)}", {"node": index})

    def with_node(self, node: NodePlan) -> Plan:
        """The plan in which that node is as given, or new."""
        others = [other for other in self.nodes if other.index != node.index]
        return replace(self, nodes=sorted([*others, node], key=lambda one: one.index))

    def settings_of(self, node: NodePlan) -> dict[str, str]:
        """What a node is started with, but for what is its own alone."""
        settings = {**_USUAL, "expected_members": str(len(self.nodes)), **self.settings, **node.settings}
        if self.source is not None:
            settings["source"] = self.source
        if self.replication is not None:
            settings["replication"] = str(self.replication)
        return settings

    def check(self, node: NodePlan) -> None:
        """Refuse settings that a node would refuse, each alone and all together.

        Raises:
            ConfigError: naming the setting.
        """
        config.load(None, {}, {"data": "/", **self.settings_of(node)})  # Its own directory is given when it is started.

    def command(self, directory: Path, index: int) -> list[str]:
        """The command line that runs a node."""
        node = self.node(index)
        settings = self.settings_of(node)
        settings |= {"data": str(directory / node.name / "data"), "listen": str(node.address)}
        settings["http_listen"] = "off" if node.http is None else str(node.http)
        settings["node"] = node.called or node.name
        # Also when it is nobody: else the environment could name strangers.
        settings["join"] = ",".join(str(seed.address) for seed in self._seeds(index)) or "none"
        flags = [part for name, value in settings.items() for part in _SETTINGS[name].arguments(value)]
        return [*node.wrapper, *command("gossipkv"), "serve", *flags]

    def _seeds(self, index: int) -> list[NodePlan]:
        """Return the nodes to join: at first the first one, which forms the cluster; later any of a few.

        The first one waits for the number of nodes that it is told.  If it is told none, it joins the others, so that
        it does not take all partitions.
        """
        if not self.formed and index > 1:
            return self.nodes[:1]
        if not self.formed and self.settings_of(self.node(index))["expected_members"] != "unknown":
            return []
        return [node for node in self.nodes if node.index != index and node.port][:SEEDS]

    def save(self, directory: Path) -> None:
        """Write it, whole or not at all."""
        beside = directory / f"{DOCUMENT}.new"
        beside.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n")
        beside.replace(directory / DOCUMENT)


_SETTINGS: Final = {setting.name: setting for setting in config.SETTINGS}


def check_names(settings: Mapping[str, str]) -> None:
    """Refuse settings that there are not, and those that the launcher chooses.

    Raises:
        ConfigError: naming the setting.
    """
    for name in settings:
        if name in CHOSEN:
            raise ConfigError(f"{name} {CHOSEN[name]}", {"setting": name})
        if name not in _SETTINGS:
            raise ConfigError(_unknown(name), {"setting": name})


def _unknown(name: str) -> str:
    return f"unknown setting {name}; the nearest known one is {nearest(name, _SETTINGS)}"


def is_path(name: str) -> bool:
    """Whether that setting is a path of this machine."""
    return name in _SETTINGS and _SETTINGS[name].kind == "path"


def merge(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """The settings, the newer ones winning; an empty value forgets one."""
    return {name: value for name, value in {**old, **new}.items() if value}


def _check(plan: Plan) -> None:
    """Refuse what `save` never writes.

    Raises:
        ValueError, TypeError, AttributeError: saying what.
    """
    if [node.index for node in plan.nodes] != [*range(1, len(plan.nodes) + 1)]:
        raise ValueError("the nodes are not numbered from 1")
    words = ["" if plan.source is None else plan.source, *plan.settings.values()]
    for node in plan.nodes:
        if parse_address(str(node.address)) != node.address:
            raise ValueError(f"{node.address!r} is no address")
        words += [node.called, *node.wrapper, *node.settings.values()]
    for word in words:
        word.encode("utf-8", "surrogateescape")  # Which only text can.


def load(directory: Path) -> Plan | None:
    """What the directory remembers; None: nothing.

    Raises:
        Corrupt: the document is not what `save` writes.
        UnsupportedFormat: it is of another program, newer or with other settings.
    """
    file = directory / DOCUMENT
    if not file.exists():
        return None
    try:
        body = json.loads(small_file.read(file, PLAN_FILE))
        number = body.pop("format")
        if number != FORMAT:
            raise UnsupportedFormat(
                f"{file}: format {number!r}; this program reads {FORMAT}", {"file": os.fspath(file)}
            )
        plan = Plan(**{**body, "nodes": [NodePlan(**node) for node in body["nodes"]]})
        _check(plan)
        for settings in (plan.settings, *(node.settings for node in plan.nodes)):
            for name in {**settings}.keys() - _SETTINGS.keys():
                words = f"{file}: {_unknown(name)}; remove it from there, or use the program that wrote it"
                raise UnsupportedFormat(words, {"file": os.fspath(file), "setting": name})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corrupt(os.fspath(file), 0, f"not the plan of a cluster ({error}); remove it to begin anew") from error
    return plan
