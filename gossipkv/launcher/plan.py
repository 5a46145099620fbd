"""The plan of a cluster, as stored in its directory: its nodes, their addresses, and their settings.

    DIR/cluster.json   the plan, for the next start of the cluster
    DIR/lock           held while a supervisor runs: the only proof that the cluster is up
    DIR/control        the socket for requests to the supervisor
    DIR/supervisor.log
    DIR/n1/log         standard error of the node, from all its starts
    DIR/n1/data        its data directory

The plan has no process ids, since a stored number may be another process's when it is used. Only the supervisor, the
parent of the nodes, knows them.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

from gossipkv.address import Address, parse_address
from gossipkv.environment import small_file
from gossipkv.errors import ConfigError, Corrupt, LocalError, UnsupportedFormat, other_format
from gossipkv.processes.program import command
from gossipkv.settings import config
from gossipkv.settings.nearest import unknown_setting
from gossipkv.settings.setting import read_advertised

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DOCUMENT: Final = "cluster.json"
PLAN_FILE: Final = small_file.Kind("plan of a cluster", 16 << 20, is_private=False)
FORMAT: Final = 1
MAX_NODES: Final = 64  # About the limit of one machine, since a node takes some 50 MB.
HOST: Final = "127.0.0.1"
BACKUPS: Final = "backups"  # Below the cluster's directory, unless a setting names other places.
SEEDS: Final = 3  # With three, a restarted node finds the others even if two seeds are down.

# Set by the launcher; settings of nodes must not override them.
_BY_NODE: Final = "cannot be set here, because the launcher chooses it for each node"
CHOSEN: Final = {
    "data": _BY_NODE,
    "listen": _BY_NODE,
    "http_listen": f"{_BY_NODE}; use --http or --no-http",
    "join": _BY_NODE,
    "node": _BY_NODE,
    "source": "cannot be set for one node; use --source for the whole cluster",
    "replication": "cannot be set for one node; use --replication for the whole cluster",
}
# All nodes are local; and an address from the environment would fit one node at most.
_USUAL: Final = {"profile": "local", "time_to_converge": "3s", "advertise": "as listen"}


@final
@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node of a plan."""

    index: int  # Numbers begin at 1.
    port: int
    host: str = HOST
    settings: dict[str, str] = field(default_factory=dict)  # Override the cluster's.
    wrapper: list[str] = field(default_factory=list)  # A command that becomes the node's, like `nsenter`.

    called: str = ""  # Name for other nodes, if it differs from `name`.
    http_port: int = 0  # 0 in a cluster without HTTP.

    @property
    def name(self) -> str:
        """The node's own name, such as `n1`."""
        return f"n{self.index}"

    @property
    def address(self) -> Address:
        """The address at which it listens."""
        return Address(self.host, self.port)

    @property
    def http(self) -> Address | None:
        """The address at which it answers HTTP, or None."""
        return Address(self.host, self.http_port) if self.http_port else None


@final
@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The whole cluster."""

    nodes: list[NodePlan]
    source: str | None = None
    replication: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    formed: bool = False  # True if the first node was ready once.
    http: bool = False  # True if nodes answer HTTP.

    def node(self, index: int) -> NodePlan:
        """Return the node of that number.

        Raises:
            LocalError: there is no such node.
        """
        for node in self.nodes:
            if node.index == index:
                return node
        raise LocalError(
            f"there is no node {index}; the nodes of the cluster are 1 to {len(self.nodes)}", {"node": index}
        )

    def with_node(self, node: NodePlan) -> ClusterPlan:
        """Return the plan with that node replaced or added."""
        siblings = [other for other in self.nodes if other.index != node.index]
        return replace(self, nodes=sorted([*siblings, node], key=lambda planned: planned.index))

    def settings_of(self, node: NodePlan) -> dict[str, str]:
        """Return the settings of a node, without those that are its own alone."""
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
        # The node's own directory is set when it is started.
        config.load(None, {}, {"data": "/", **self.settings_of(node)})

    def command(self, directory: Path, index: int) -> list[str]:
        """Return the command line that runs a node."""
        node = self.node(index)
        settings = {"backup_roots": str(directory / BACKUPS), **self.settings_of(node)}
        settings |= {"data": str(directory / node.name / "data"), "listen": str(node.address)}
        settings["http_listen"] = "off" if node.http is None else str(node.http)
        settings["node"] = node.called or node.name
        # An empty list is passed, too, since the environment could name foreign nodes.
        settings["join"] = ",".join(str(self._reached_at(seed)) for seed in self._seeds(index)) or "none"
        flags = [part for name, value in settings.items() for part in _SETTINGS[name].arguments(value)]
        return [*node.wrapper, *command("gossipkv"), "serve", *flags]

    def _seeds(self, index: int) -> list[NodePlan]:
        """Return the nodes to join: at first the first node, which forms the cluster; later a few others.

        The first node waits for the expected number of nodes. If that is unknown it joins the others, so that it does
        not take all partitions.
        """
        if not self.formed and index > 1:
            return self.nodes[:1]
        if not self.formed and self.settings_of(self.node(index))["expected_members"] != "unknown":
            return []
        return [node for node in self.nodes if node.index != index and node.port][:SEEDS]

    def _reached_at(self, node: NodePlan) -> Address:
        advertised = read_advertised(self.settings_of(node)["advertise"])
        return node.address if advertised is None else Address(advertised.host, advertised.port or node.port)

    def save(self, directory: Path) -> None:
        """Write the plan, completely or not at all."""
        beside = directory / f"{DOCUMENT}.new"
        beside.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n")
        beside.replace(directory / DOCUMENT)


_SETTINGS: Final = {setting.name: setting for setting in config.SETTINGS}


def check_names(settings: Mapping[str, str]) -> None:
    """Refuse unknown settings, and those that the launcher chooses.

    Raises:
        ConfigError: naming the setting.
    """
    for name in settings:
        if name in CHOSEN:
            raise ConfigError(f"{name} {CHOSEN[name]}", {"setting": name})
        if name not in _SETTINGS:
            raise ConfigError(unknown_setting(name, _SETTINGS), {"setting": name})


def is_path(name: str) -> bool:
    """Return True if that setting is a path of this machine."""
    return name in _SETTINGS and _SETTINGS[name].kind == "path"


def merge(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Return the merged settings; newer ones win, and an empty value removes a setting."""
    return {name: value for name, value in {**old, **new}.items() if value}


def _check(plan: ClusterPlan) -> None:
    """Refuse plans that `save` never writes.

    Raises:
        ValueError, TypeError, AttributeError: naming the error.
    """
    if [node.index for node in plan.nodes] != [*range(1, len(plan.nodes) + 1)]:
        raise ValueError("the nodes are not numbered 1, 2 and so on")
    words = ["" if plan.source is None else plan.source, *plan.settings.values()]
    for node in plan.nodes:
        if parse_address(str(node.address)) != node.address:
            raise ValueError(f"{node.address!r} is not a valid address")
        words += [node.called, *node.wrapper, *node.settings.values()]
    for word in words:
        word.encode("utf-8", "surrogateescape")  # Fails unless it is text.


def load(directory: Path) -> ClusterPlan | None:
    """Return the plan in the directory; None: there is none.

    Raises:
        Corrupt: the document was not written by `save`.
        UnsupportedFormat: another program wrote it, in another format or with other settings.
    """
    file = directory / DOCUMENT
    if not file.exists():
        return None
    try:
        body = json.loads(small_file.read(file, PLAN_FILE))
        number = body.pop("format")
        if number != FORMAT:
            raise other_format(f"{file}: the plan", number, FORMAT, file=os.fspath(file))
        plan = ClusterPlan(**{**body, "nodes": [NodePlan(**node) for node in body["nodes"]]})
        _check(plan)
        for settings in (plan.settings, *(node.settings for node in plan.nodes)):
            for name in {**settings}.keys() - _SETTINGS.keys():
                words = f"{unknown_setting(name, _SETTINGS)}; remove it there, or use the release that wrote the file"
                raise UnsupportedFormat(f"{file}: {words}", {"file": os.fspath(file), "setting": name})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corrupt(
            os.fspath(file),
            0,
            f"the file is not the plan of a cluster ({error}); remove the file to start a new cluster",
        ) from error
    return plan
