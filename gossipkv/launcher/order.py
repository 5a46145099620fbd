"""The request of a launcher to a new supervisor, and the plan that results."""

from __future__ import annotations

import dataclasses
import os
import secrets
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import LocalError
from gossipkv.launcher.plan import HOST, MAX_NODES, ClusterPlan, NodePlan, check_names, merge
from gossipkv.settings import config

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_NODES: Final = 3


def _name(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the setting `cluster` of a new cluster: from the environment, else a name that is unique here.

    Ports of one cluster become another's, so a node that looks for a lost member must not accept the new owner. The
    name is stored in either case: a data directory belongs to it, and the next environment may not have it.

    Raises:
        ConfigError: the environment has settings that nodes would refuse.
    """
    node = config.load(environ=environ, flags={"data": "/"})  # Each node has a directory of its own.
    return {"cluster": node.cluster if "cluster" in node.origins else f"{node.cluster}-{secrets.token_hex(4)}"}


@final
@dataclass(frozen=True, slots=True)
class Place:
    """The place of a node, if it is not any free port of 127.0.0.1.

    Attributes:
        host: The address at which it listens.
        port: Its port; 0: any free one.
        wrapper: A command that becomes the node's, like `nsenter`.
    """

    host: str = HOST
    port: int = 0
    wrapper: list[str] = field(default_factory=list)


@final
@dataclass(frozen=True, slots=True)
class ClusterOrder:
    """The launcher's request; omitted values come from the plan in the directory, else from the defaults."""

    nodes: int | None = None
    base_port: int | None = None
    source: str | None = None
    replication: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)
    http: bool | None = None
    http_base_port: int | None = None
    resp_base_port: int | None = None
    leash: int | None = None  # A descriptor; None: the nodes outlive the launcher.

    def plan(self, remembered: ClusterPlan | None, environ: Mapping[str, str] = os.environ) -> ClusterPlan:
        """Return the plan for nodes with the environment `environ`; ports of 0 are still to be chosen.

        Raises:
            LocalError: fewer nodes than there are, or too many.
            ConfigError: a setting is unknown, is refused by nodes, or is chosen by the launcher.
        """
        before = ClusterPlan([], settings=_name(environ)) if remembered is None else remembered
        planned = len(before.nodes)
        nodes = before.nodes + [NodePlan(index, 0) for index in range(planned + 1, self._count(planned) + 1)]
        for at, place in enumerate(self.places[: len(nodes)]):
            nodes[at] = dataclasses.replace(nodes[at], **asdict(place))
        for at, node in enumerate(nodes if self.resp_base_port is not None else ()):
            resp = {"resp_listen": f"{node.host}:{(self.resp_base_port or 0) + at}"}
            nodes[at] = dataclasses.replace(node, settings=node.settings | resp)
        check_names(self.settings)
        plan = ClusterPlan(
            nodes,
            source=before.source if self.source is None else self.source,
            replication=before.replication if self.replication is None else self.replication,
            settings=merge(before.settings, self.settings),
            formed=before.formed,
            http=before.http if self.http is None else self.http,
        )
        for node in plan.nodes:
            plan.check(node)
        return plan

    def _count(self, planned: int) -> int:
        count = self.nodes or max(len(self.places), planned) or DEFAULT_NODES
        if not 1 <= count <= MAX_NODES:
            raise LocalError(f"a cluster on one machine must have from 1 to {MAX_NODES} nodes, not {count}")
        if count < planned:
            raise LocalError(
                f"the cluster has {planned} nodes and cannot shrink to {count}; choose another directory with --data"
            )
        return count
