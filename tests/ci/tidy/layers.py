"""Which part may know which: the layers, and the modules that may know Trio.

Read the table from top to bottom: each part may import the parts named beside it, and nothing below itself.  `client`
stands beside what a node is made of and knows none of it, so that it runs on any system: what it may import is all it
needs installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.ci.tidy.source import Source

GROUND = {"errors", "log", "environment", "settings"}
DATASET = {"dataset", "dataset.lifecycle", "dataset.source", "dataset.build", "dataset.local", "dataset.scrub"} | {
    "dataset.cluster"
}
GOSSIP = {"gossip", "gossip.core", "gossip.packets", "gossip.membership", "gossip.tree", "gossip.shell"}

# part: the parts it may import, itself always among them.  A part is a package, or a room or module of one that has a
# line of its own: what is nearest holds.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "log": set(),
    "unbuilt": set(),
    "garbage": set(),
    "address": {"errors"},
    "environment": {"errors", "address"},
    "environment.trio_world": {"address", "environment"},  # For `cli` alone.
    "settings": {"errors", "address"},
    "processes": {"errors", "log"},
    "access": {"errors", "environment", "settings"},
    "wire": {"errors"},
    "keyspace": {"errors"},
    "placement": {"errors", "address"},
    "storage": GROUND,
    "storage.engine": GROUND | {"processes", "storage"},
    "dataset.formats": {"errors", "keyspace", "storage"},
    "dataset.source": GROUND | {"address", "keyspace", "placement", "storage"},
    "dataset.local": GROUND | {"address", "keyspace", "placement", "storage", "dataset.source"},
    "dataset.cluster": {"address", "errors", "placement"},
    "dataset.build": GROUND
    | {"processes", "keyspace", "placement", "storage"}
    | {"dataset.source", "dataset.formats", "dataset.local"},
    "dataset.scrub": GROUND | {"processes", "keyspace", "placement", "storage"} | {"dataset.source", "dataset.local"},
    "dataset.offline": GROUND
    | {"address", "keyspace", "placement", "storage", "dataset.source", "dataset.formats", "dataset.local"},
    "dataset.memory": {"errors", "log", "environment", "storage", "dataset.local"},
    "dataset.build_counts": {"dataset.local"},
    "dataset.rewriting": {"errors", "log"},
    "dataset.shared_resources": GROUND
    | {"placement", "dataset.build", "dataset.build_counts", "dataset.cluster", "dataset.local", "dataset.source"},
    "dataset.lifecycle": GROUND
    | {"placement", "storage", "dataset.build", "dataset.formats", "dataset.local", "dataset.source"}
    | {"dataset.rewriting", "dataset.shared_resources"},
    # It tells the core what the copies are, and stands on both.
    "dataset.cluster.part": GROUND
    | {"placement", "storage", "dataset.cluster", "dataset.lifecycle", "dataset.local", "dataset.source"}
    | {"dataset.rewriting", "dataset.shared_resources"},
    "dataset": GROUND
    | {"address", "wire", "keyspace", "placement", "storage"}
    | {
        "dataset.lifecycle",
        "dataset.source",
        "dataset.formats",
        "dataset.local",
        "dataset.build",
        "dataset.scrub",
        "dataset.cluster",
        "dataset.cluster.part",
        "dataset.memory",
        "dataset.shared_resources",
        "dataset.build_counts",
        "dataset.rewriting",
        "dataset.offline",
    },
    "gossip": {"errors", "address"},
    "gossip.packets": {"errors", "address", "gossip"},
    "gossip.membership": {"errors", "address", "gossip", "gossip.packets"},
    "gossip.tree": {"errors", "address", "gossip", "gossip.packets", "gossip.membership"},
    "gossip.anti_entropy": {"errors", "address", "gossip", "gossip.packets", "gossip.membership", "gossip.tree"},
    "gossip.inbox": {"errors", "address", "gossip", "gossip.packets", "gossip.membership", "gossip.tree"}
    | {"gossip.anti_entropy"},
    "gossip.core": {"errors", "address", "gossip", "gossip.packets", "gossip.membership", "gossip.tree"}
    | {"gossip.anti_entropy", "gossip.inbox"},
    "gossip.shell": {"errors", "log", "environment", "address", "wire", "storage", "gossip", "gossip.packets"},
    "register": {"errors", "log", "storage.engine"},
    "register.metadata": {"errors", "settings", "wire", "keyspace", "placement", "register"},
    "replication": {"errors", "wire", "storage.engine"},
    "replication.shell": {"errors", "log", "environment", "wire", "storage.engine", "replication"},
    "client": {"errors", "address", "wire", "keyspace"},
    "blocking": {"client"},
    "table": {"errors", "log", "environment", "settings", "wire", "gossip", "gossip.tree"}
    | {"storage", "storage.engine", "register", "register.metadata"}
    | {"keyspace", "placement", "replication", "replication.shell"},
    "serving": {"errors", "log", "environment", "settings", "wire", "keyspace", "placement", "storage"},
    "node": GROUND
    | {"access", "address", "processes", "wire", "keyspace", "placement", "storage", "storage.engine", "http.order"}
    | {"table", "serving", "status"}
    | GOSSIP
    | DATASET,
    "http": {
        "access",
        "errors",
        "garbage",
        "log",
        "settings",
        "address",
        "processes",
        "wire",
        "client",
        "http.order",
        "placement",
        "status",
        "storage",  # For CRC-32C, which the pump has of a value as well.
    },
    "http.order": {"errors", "address"},  # What a node knows of its child.
    "status": {"errors", "settings", "wire", "placement"},
    "launcher": GROUND | {"address", "processes", "wire", "client"},
    "loadtest": GROUND
    | {"address", "processes", "wire", "client"}
    | {"dataset.source", "dataset.formats"}  # A truth is read as nodes read.
    | {"serving"},  # For TLS without the interpreter, as its loop speaks it.
    "demo": GROUND | {"keyspace", "wire", "client", "launcher"},
    "cli": GROUND
    | {
        "",
        "environment.trio_world",
        "access",
        "processes",
        "address",
        "wire",
        "keyspace",
        "storage",
        "storage.engine",
        "register.metadata",
        "node",
        "table",
        "client",
        "http",
        "http.order",
        "launcher",
        "status",
        "loadtest",
        "demo",
        "garbage",
    }
    | GOSSIP
    | DATASET
    | {"dataset.formats", "dataset.offline"},
    "__main__": {"cli", "garbage", "processes"},
    "": {"errors", "unbuilt", "client", "blocking"},
}

# The shells: what waits.  Everything else is told the time and the bytes.
TRIO_SHELLS: dict[str, str] = {
    "gossipkv.processes.child": "waits for the end of a child process",
    "gossipkv.dataset.build.parent": "waits for the child process that builds",
    "gossipkv.dataset.scrub.parent": "waits for the child process that reads back",
    "gossipkv.dataset.scrub.scrub": "waits until a version is due",
    "gossipkv.dataset.coalesced": "waits for a look at the source that others share",
    "gossipkv.dataset.database": "one database's life: waits for scans, builds and retirements",
    "gossipkv.dataset.lifecycle.copies": "waits for the disk, and for builds",
    "gossipkv.dataset.rewriting": "waits until a document is to be written, or may be",
    "gossipkv.dataset.lifecycle.switching": "waits until the active version is written down",
    "gossipkv.dataset.source.look_threads": "waits for threads that look at the source",
    "gossipkv.dataset.lifecycle.version_build": "waits for room on the disk, and for the build",
    "gossipkv.dataset.memory.paging": "looks every few seconds, warms a piece at a time",
    "gossipkv.dataset.lifecycle.open_versions": "waits for the last read of a file, and for a disk that comes back",
    "gossipkv.dataset.library": "all databases of a node",
    "gossipkv.storage.engine.shell": "waits for syncs, for room, and for merges",
    "gossipkv.storage.engine.committing": "waits for a group that is written",
    "gossipkv.storage.engine.parent": "waits for the child process that merges",
    "gossipkv.gossip.shell.agent": "waits for datagrams, for the timers of the core, for requests over TCP",
    "gossipkv.gossip.shell.persistence": "waits for the disk, and for another attempt",
    "gossipkv.gossip.shell.seeds": "waits for the name service",
    "gossipkv.register.space": "writes what was decided in the order in which it came, waits for room",
    "gossipkv.register.shell": "waits for acceptors, for the disk and for the timers of proposers",
    "gossipkv.register.metadata.ledger": "fetches pages from others",
    "gossipkv.register.metadata.transactions": "waits until a majority holds a map, and before it tries again",
    "gossipkv.register.metadata.server": "waits for pages, and for looks at registers",
    "gossipkv.register.metadata.known": "learns what is shown in tasks, and wakes who waits",
    "gossipkv.register.metadata.deadline": "ends what takes longer than it may",
    "gossipkv.register.metadata.catalogue": "asks all servers of a table at once",
    "gossipkv.register.metadata.nodes": "asks all nodes at once whether they take part",
    "gossipkv.replication.shell": "reads the log, keeps places, and wakes what waits at its deadline",
    "gossipkv.table.accepting": "forwards what is due now and then",
    "gossipkv.table.asking": "waits for connections, and for the answers of other nodes",
    "gossipkv.table.changing": "waits for what other nodes say, and for who has just come to be heard of",
    "gossipkv.table.refounding": "asks the hosts of a range at once whether they live",
    "gossipkv.table.deciding": "waits for the next look at registers, and for other nodes",
    "gossipkv.node.gossip": "lists many entries in several turns",
    "gossipkv.node.verdicts": "asks all members at once, and waits until somebody wants a verdict",
    "gossipkv.node.access": "waits before it looks at the token of whom others were wrong beside",
    "gossipkv.node.binding": "waits for the name service",
    "gossipkv.node.gateway": "waits for the end of the gateway, and before it starts it again",
    "gossipkv.node.detached": "waits for a gateway that lives, and for room on the way to it",
    "gossipkv.node.users_file": "looks at the file now and then",
    "gossipkv.node.certificate": "looks at its files again and again",
    "gossipkv.node.wiring": "starts and stops the parts of a node, waits for signals",
    "gossipkv.table.verifying": "goes through a copy a page at a time, and asks hosts again",
    "gossipkv.table.for_clients": "waits until all nodes know a table that was made",
    "gossipkv.table.placing": "asks all nodes at once how much they have",
    "gossipkv.table.quarantine": "asks all nodes at once what was set aside",
    "gossipkv.table.moving": "looks at what is wanted of each table now and then",
    "gossipkv.table.planning": "has hosts asked to divide, and a plan made beside the loop",
    "gossipkv.table.measuring": "measures copies by portions now and then, and asks other nodes what theirs have",
    "gossipkv.table.splitting": "looks at the sizes of copies in several turns",
    "gossipkv.table.stepping": "asks all hosts at once, and steps once a second",
    "gossipkv.table.works": "runs what a node does for its tables, each a task",
    "gossipkv.table.for_peers": "waits until a config id is reached",
    "gossipkv.table.holding": "looks at long maps in several turns",
    "gossipkv.table.telling": "likewise",
    "gossipkv.table.tables": "has a store open, waits until somebody wants one",
    "gossipkv.node.peers.sharing": "waits until others say something else",
    "gossipkv.node.peers.dialling": "shakes hands by TLS",
    "gossipkv.node.peers.connections": "dials the other nodes, and waits before it does so again",
    "gossipkv.serving.scan_elsewhere": "waits for the pages of other nodes",
    "gossipkv.serving.pumps": "runs and drains pumps side by side",
    "gossipkv.serving.pump": "waits until the epoll descriptor of the serving loop is readable",
    "gossipkv.environment.seam": "names the limiter of threads in a type; at run time it imports no Trio",
    "gossipkv.environment.trio_world": "waits for sockets, threads and signals",
    "gossipkv.environment.trio_loop": "stands where Trio sleeps",
    "gossipkv.http.source_times": "reads that want the same time of a version wait for one question",
    "gossipkv.cli.serve": "runs a node",
    "gossipkv.cli.http": "runs a gateway alone",
    "gossipkv.http.alone": "starts and stops a gateway that belongs to no node, waits for signals",
    "gossipkv.http.beside": "starts and stops the gateway of a node, waits for its words",
    "gossipkv.http.connection": "one connection: waits for requests, for their answers, and until they are taken",
    "gossipkv.http.detached": "waits for connections that the node passes on",
    "gossipkv.http.gateway": "accepts connections, and looks whose time is over",
    "gossipkv.http.page.survey": "waits for the answers of the node",
    "gossipkv.http.page.pages": "samples the node once a second, renders in a thread",
    "gossipkv.client.trio_client": "the client for Trio: parks the tasks that ask, owns the nursery",
    "gossipkv.client.trio_scan": "the records of a scan: waits for pages",
    "gossipkv.client.trio_table": "a table: sends nothing for a task that is cancelled",
    "gossipkv.client.trio_link": "one connection of that client: a task that reads and one that sends",
}

# The cores import nothing that can tell the time, draw a number, wait or touch the world.
CORES = (
    "gossipkv.access.rights",
    "gossipkv.access.users",
    "gossipkv.keyspace",
    "gossipkv.wire",
    "gossipkv.gossip.anti_entropy",
    "gossipkv.gossip.core",
    "gossipkv.gossip.effects",
    "gossipkv.gossip.inbox",
    "gossipkv.gossip.member",
    "gossipkv.gossip.membership",
    "gossipkv.gossip.packets",
    "gossipkv.gossip.profile",
    "gossipkv.gossip.tree",
    "gossipkv.register.acceptor",
    "gossipkv.register.ballot",
    "gossipkv.register.changes",
    "gossipkv.register.configuration",
    "gossipkv.register.force",
    "gossipkv.register.messages",
    "gossipkv.register.proposer",
    "gossipkv.register.metadata.discovery",
    "gossipkv.register.metadata.head",
    "gossipkv.register.metadata.operations",
    "gossipkv.register.metadata.pages",
    "gossipkv.register.metadata.partitions",
    "gossipkv.register.metadata.tables",
    "gossipkv.register.metadata.tree",
    "gossipkv.replication.clock",
    "gossipkv.replication.record",
    "gossipkv.replication.time",
    "gossipkv.placement.candidates",
    "gossipkv.placement.holders",
    "gossipkv.placement.partition",
    "gossipkv.placement.partition_set",
    "gossipkv.placement.ring",
    "gossipkv.placement.shard_claim",
    "gossipkv.placement.statement",
    "gossipkv.client._session",
    "gossipkv.client._requests",
    "gossipkv.client.backoff",
    "gossipkv.client.dispatcher",
    "gossipkv.client.pages",
    "gossipkv.client.parts",
    "gossipkv.client.reads",
    "gossipkv.client.tables",
    "gossipkv.client.route",
    "gossipkv.client.tls",
    "gossipkv.dataset.lifecycle.copy_states",
    "gossipkv.dataset.lifecycle.decisions",
    "gossipkv.dataset.lifecycle.verdicts",
    "gossipkv.dataset.lifecycle.version_states",
    "gossipkv.dataset.cluster",
    "gossipkv.http.health",
    "gossipkv.http.metric_table",
    "gossipkv.http.metrics",
    "gossipkv.http.samples",
    "gossipkv.http.answers",
    "gossipkv.http.conditions",
    "gossipkv.http.exchange",
    "gossipkv.wire.http_date",
    "gossipkv.http.json_lines",
    "gossipkv.http.media",
    "gossipkv.http.ranges",
    "gossipkv.http.read_options",
    "gossipkv.http.target",
    "gossipkv.status",
    "gossipkv.http.page.chart",
    "gossipkv.http.page.drawing",
    "gossipkv.http.page.history",
    "gossipkv.http.page.listing",
    "gossipkv.http.page.placement_map",
    "gossipkv.http.page.view",
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
        package = part(source.module, table) or source.package
        if package not in table:
            wrong.append(f"{source.where}: `{package}` has no line in the table of layers")
            continue
        allowed = table[package] | {package}
        for found in source.imports:
            at = f"{source.where}:{found.line}: imports {found.path}"
            if found.module.startswith("."):
                wrong.append(f"{at}: relative; write the whole path")
            elif found.module.split(".")[0] == "tests":
                wrong.append(f"{at}: the package must not know its tests")
            elif found.path == "gossipkv.__version__":
                continue  # It stands in the root, which is loaded before any part, and binds nobody.
            elif found.module.split(".")[0] == "gossipkv" and part(found.path, table) not in allowed:
                wrong.append(f"{at}: `{package}` may import only {sorted(allowed)}")
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


def check_circles(tree: list[Source]) -> list[str]:
    """Every circle of modules that import each other, for types alone too."""
    return [f"{', '.join(circle)}: know each other in a circle" for circle in sorted(_circles(_imported(tree)))]


def check_table(table: dict[str, set[str]]) -> list[str]:
    """Two parts that know each other, directly or in a ring."""
    reach = {part: set(known) for part, known in table.items()}
    for _ in table:
        for known in reach.values():
            known.update(*(reach.get(other, set()) for other in known))
    return [f"`{part}` reaches itself" for part, known in reach.items() if part in known]


def part(path: str, table: dict[str, set[str]] = MAY_IMPORT) -> str:
    """Part that a module, or a name in one, belongs to: the nearest with a line in the table.

    `from gossipkv import errors` lands in `errors`, and a name of the root itself in the root; a package without a line
    is told by its own name.
    """
    names = path.split(".")[1:]
    for end in range(len(names), 0, -1):
        if ".".join(names[:end]) in table:
            return ".".join(names[:end])
    return names[0] if len(names) > 1 else ""


def _home(source: Source) -> str:
    """The package that a file stands in."""
    return source.module if source.path.stem == "__init__" else source.module.rpartition(".")[0]


def _imported(tree: list[Source]) -> dict[str, set[str]]:
    """Which modules of the package each module imports, whatever for; the root, which has only names, left out."""
    modules = {source.module for source in tree} - {"gossipkv"}
    known: dict[str, set[str]] = {module: set() for module in modules}
    for source in tree:
        for found in source.imports:
            path = found.path
            while path and path not in modules:
                path = path.rpartition(".")[0]
            if path and path != source.module and source.module in known:
                known[source.module].add(path)
    return known


def _circles(known: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """The largest sets of modules in which each reaches each."""
    reach = {module: _reached(module, known) for module in known}
    circles = {tuple(sorted(other for other in reached if module in reach[other])) for module, reached in reach.items()}
    return {circle for circle in circles if len(circle) > 1}


def _reached(module: str, known: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [module]
    while ahead:
        for other in known[ahead.pop()] - reached:
            reached.add(other)
            ahead.append(other)
    return reached
