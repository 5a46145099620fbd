"""Which part may know which: the layers, and the modules that may know Trio.

Read the table from top to bottom: each part may import the parts named beside it, and nothing below itself.  `client`
stands beside the node and not above it, so that it runs on any system: what it may import is all it needs installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.tidy.source import Import, Source

GROUND = {"errors", "environment", "masking", "database_settings", "setting", "config"}

# part: the parts it may import, itself always among them.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "unbuilt": set(),
    "environment": {"errors", "address"},
    "reality": {"address", "environment"},
    "address": {"errors"},
    "quantity": {"errors"},
    "masking": set(),
    "toml_lines": set(),
    "database_settings": {"errors", "masking"},
    "setting": {"address", "quantity", "masking"},
    "config": {"errors", "address", "masking", "toml_lines", "database_settings", "setting"},
    "wire": {"errors"},
    "keyspace": {"errors"},
    "latency": set(),
    "storage": GROUND,
    "dataset": GROUND | {"address", "quantity", "wire", "keyspace", "storage"},
    "gossip": {"errors", "environment", "address", "wire", "storage"},
    "client": {"errors", "address", "wire", "keyspace"},
    "blocking": {"client"},
    "node": GROUND | {"address", "quantity", "wire", "keyspace", "latency", "storage", "gossip", "dataset"},
    "cluster": GROUND | {"address", "wire", "client"},
    "loadtest": {"errors", "address", "quantity", "wire", "latency", "client"},
    "testing": GROUND | {"address", "wire", "keyspace", "storage", "gossip", "dataset", "node", "client"},
    "demo": GROUND | {"address", "quantity", "wire", "keyspace", "storage", "dataset", "node", "client"},
    "cli": GROUND
    | {"", "address", "quantity", "wire", "keyspace", "storage", "gossip", "dataset", "node", "client"}
    | {"reality", "cluster", "demo", "testing"},
    "__main__": {"cli"},
    "": {"errors", "unbuilt", "client", "blocking"},
}

# The shells: what waits.  Everything else is told the time and the bytes.
TRIO_SHELLS: dict[str, str] = {
    "gossipkv.dataset.build": "waits for the child process that builds",
    "gossipkv.dataset.coalesced": "waits for a look at the source that others share",
    "gossipkv.dataset.database": "one database's life: waits for scans, builds and retirements",
    "gossipkv.dataset.looks": "waits for threads that look at the source",
    "gossipkv.dataset.making": "waits for room on the disk, and for the build",
    "gossipkv.dataset.library": "all databases of a node",
    "gossipkv.gossip.agent": "waits for datagrams, for the timers of the core, for requests over TCP",
    "gossipkv.gossip.asking": "waits for one answer over TCP",
    "gossipkv.gossip.keeping": "waits for the disk, and for another attempt",
    "gossipkv.gossip.seeds": "waits for the name service",
    "gossipkv.node.gossiping": "lists many entries in several turns",
    "gossipkv.node.binding": "waits for the name service",
    "gossipkv.node.node": "starts and stops the parts of a node, waits for signals",
    "gossipkv.node.pump": "waits until the epoll descriptor of the serving loop is readable",
    "gossipkv.environment": "names the limiter of threads in a type; at run time it imports no Trio",
    "gossipkv.reality": "waits for sockets, threads and signals",
    "gossipkv.cli.serve": "runs a node",
    "gossipkv.testing.nodes.comings": "whole nodes come and go",
    "gossipkv.testing.nodes.mistakes": "whole nodes that were set up wrongly",
    "gossipkv.testing.nodes.phases": "waits until whole nodes agree",
    "gossipkv.testing.nodes.publishing": "reads in virtual time what nodes publish",
    "gossipkv.testing.nodes.storms": "whole nodes on a bad network",
    "gossipkv.testing.nodes.views": "looks at nodes again and again",
    "gossipkv.testing.nodes.client": "waits for a node's answer over the simulated network",
    "gossipkv.testing.nodes.cluster": "runs whole nodes in virtual time",
    "gossipkv.testing.nodes.machine": "the lives of a node, each a task",
    "gossipkv.testing.nodes.network": "waits until the next packet arrives",
    "gossipkv.testing.nodes.process": "the simulated clock, threads and signals of a node",
    "gossipkv.testing.nodes.scheduling": "makes Trio deterministic",
    "gossipkv.testing.nodes.sockets": "waits for simulated sockets",
    "gossipkv.testing.nodes.streams": "waits for a simulated connection",
    "gossipkv.testing.nodes.trace": "reads the virtual time",
    "gossipkv.client.trio_client": "the client for Trio: parks the tasks that ask, owns the nursery",
    "gossipkv.client.trio_link": "one connection of that client: a task that reads and one that sends",
}

# The cores import nothing that can tell the time, draw a number, wait or touch the world.
CORES = (
    "gossipkv.keyspace",
    "gossipkv.wire",
    "gossipkv.gossip.answers",
    "gossipkv.gossip.core",
    "gossipkv.gossip.digests",
    "gossipkv.gossip.effects",
    "gossipkv.gossip.envelope",
    "gossipkv.gossip.exchange",
    "gossipkv.gossip.fields",
    "gossipkv.gossip.keyring",
    "gossipkv.gossip.member",
    "gossipkv.gossip.membership",
    "gossipkv.gossip.packets",
    "gossipkv.gossip.packing",
    "gossipkv.gossip.profile",
    "gossipkv.gossip.sealing",
    "gossipkv.gossip.state_hash",
    "gossipkv.gossip.tree",
    "gossipkv.client._session",
    "gossipkv.client._requests",
    "gossipkv.client.backoff",
    "gossipkv.client.dispatcher",
    "gossipkv.client.pages",
    "gossipkv.client.parts",
    "gossipkv.client.reads",
    "gossipkv.client.route",
    "gossipkv.dataset.lifecycle",
)
WORLD = {
    "trio",
    "time",
    "random",
    "secrets",
    "socket",
    "select",
    "os",
    "io",
    "pathlib",
    "threading",
    "asyncio",
    "subprocess",
}


def check_layers(tree: list[Source], may_import: dict[str, set[str]] | None = None) -> list[str]:
    """Every import between parts of the package that the table does not allow."""
    table = MAY_IMPORT if may_import is None else may_import
    wrong = []
    for source in tree:
        if source.package not in table:
            wrong.append(f"{source.where}: `{source.package}` has no line in the table of layers")
            continue
        allowed = table[source.package] | {source.package}
        for found in source.imports:
            at = f"{source.where}:{found.line}: imports {found.path}"
            if found.module.startswith("."):
                wrong.append(f"{at}: relative; write the whole path")
            elif found.module.split(".")[0] == "tests":
                wrong.append(f"{at}: the package must not know its tests")
            elif found.path == "gossipkv.__version__":
                continue  # It stands in the root, which is loaded before any part, and binds nobody.
            elif found.module.split(".")[0] == "gossipkv" and _part(found, table) not in allowed:
                wrong.append(f"{at}: `{source.package}` may import only {sorted(allowed)}")
    return wrong


def check_private_extensions(tree: list[Source]) -> list[str]:
    """Every Python import of an extension `_name`, or of anything private, from outside its package."""
    wrong = []
    for source in tree:
        for found in source.imports:
            parts = found.path.split(".")
            if parts[0] != "gossipkv" or found.cimport:
                continue
            private = [i for i, part in enumerate(parts) if part.startswith("_") and not part.startswith("__")]
            if private and ".".join(parts[: private[0]]) != _home(source):
                wrong.append(f"{source.where}:{found.line}: imports {found.path}: only its own package may")
    return wrong


def check_trio(tree: list[Source], shells: dict[str, str] | None = None) -> list[str]:
    """Every import of Trio outside the listed shells, and every listed shell that has none."""
    listed = TRIO_SHELLS if shells is None else shells
    having = {source.module for source in tree for found in source.imports if found.module.split(".")[0] == "trio"}
    wrong = [f"{module}: imports trio and is not listed among the shells" for module in sorted(having - set(listed))]
    return wrong + [f"{module}: listed as a shell, but imports no trio" for module in sorted(set(listed) - having)]


def check_cores(tree: list[Source], cores: tuple[str, ...] = CORES) -> list[str]:
    """Every import by a core of something that reaches the world."""
    return [
        f"{source.where}:{found.line}: a core imports {found.module}"
        for source in tree
        if source.module.startswith(cores)
        for found in source.imports
        if found.module.split(".")[0] in WORLD
    ]


def check_table(table: dict[str, set[str]]) -> list[str]:
    """Two parts that know each other, directly or in a ring."""
    reach = {part: set(known) for part, known in table.items()}
    for _ in table:
        for known in reach.values():
            known.update(*(reach.get(other, set()) for other in known))
    return [f"`{part}` reaches itself" for part, known in reach.items() if part in known]


def _part(found: Import, table: dict[str, set[str]]) -> str:
    """The part that an import lands in; `from gossipkv import errors` lands in errors."""
    parts = found.path.split(".")
    return parts[1] if len(parts) > 1 and (len(parts) > 2 or parts[1] in table) else ""


def _home(source: Source) -> str:
    """The package that a file stands in."""
    return source.module if source.path.stem == "__init__" else source.module.rpartition(".")[0]
