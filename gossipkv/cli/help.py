"""The commands by groups, and the help of each: its own options, those of the connection, examples, its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from gossipkv.errors import DOCS

if TYPE_CHECKING:
    from collections.abc import Mapping


class Listed(NamedTuple):
    """The module that holds a command, its page below docs/, and its line in `--help`."""

    module: str
    page: str
    line: str


NODES_KEY: Final = "gossipkv.nodes"  # Key in click's context of the nodes before the command's name.

# In the order of `--help`.
GROUPS: Final[Mapping[str, Mapping[str, Listed]]] = {
    "Run": {
        "demo": Listed("demo", "users/start", "Run the main job on real data, end to end, and leave nothing behind."),
        "serve": Listed("serve", "operators/running", "Run a node."),
        "cluster": Listed("cluster", "operators/cluster", "Run a cluster on this machine, for trials and tests."),
        "http": Listed("http", "users/http", "Run an HTTP gateway in front of a cluster."),
        "config": Listed("settings", "operators/configuration", "Write every setting: its value, origin and meaning."),
    },
    "Data": {
        "get": Listed("reads", "users/read", "Read the value of one key."),
        "mget": Listed("reads", "users/read", "Read the values of several keys."),
        "scan": Listed("reads", "users/read", "Read records in key order."),
        "put": Listed("writes", "users/tables", "Write a record to a table."),
        "delete": Listed("writes", "users/tables", "Delete a record from a table."),
        "publish": Listed("publish", "users/publish", "Publish a finished directory as a version of a dataset."),
        "rollback": Listed("databases", "users/publish", "Return to an earlier version of a dataset on all nodes."),
        "databases": Listed("databases", "operators/life-of-a-version", "Hold or release a version of a dataset."),
        "refresh": Listed("node", "operators/life-of-a-version", "Scan a node's source now."),
        "build": Listed("build", "users/offline-builds", "Build sorted files from a source, without a node."),
    },
    "Tables": {
        "table": Listed("table", "operators/tables", "Manage tables, their partitions and their replicas."),
        "backup": Listed(
            "backup", "operators/backups", "Back up the cluster's tables; list, check and remove backups."
        ),
        "restore": Listed("backup", "operators/backups", "Load the tables of a backup into the running cluster."),
    },
    "Cluster": {
        "status": Listed(
            "status", "operators/status-page", "Show the health of the cluster, and the node's databases."
        ),
        "ping": Listed("node", "operators/shell", "Check that a node answers."),
        "members": Listed("gossip", "operators/gossip", "List the members of the cluster."),
        "tree": Listed("gossip", "operators/gossip", "Show the keys that members publish by gossip."),
        "node": Listed("placement", "operators/placement", "Choose the nodes that hold tables."),
        "metadata": Listed("metadata", "operators/tables", "Choose the nodes that decide on tables (acceptors)."),
    },
    "Security": {
        "keys": Listed("keys", "operators/security", "Manage the key ring that seals gossip."),
        "users": Listed("users", "operators/security", "Manage the file of users and their rights."),
        "certificates": Listed(
            "certificates",
            "operators/security",
            "Make a certificate authority, and certificates for nodes and clients.",
        ),
    },
    "Tools": {
        "inspect": Listed("files", "operators/data-directory", "Describe a sorted file or a data directory."),
        "verify": Listed(
            "files",
            "operators/data-directory",
            "Check all bytes of a file or directory, or compare a table's replicas.",
        ),
        "loadtest": Listed("loadtest", "users/load-test", "Load servers, check every answer, and measure latency."),
    },
}
COMMANDS: Final = {name: listed for group in GROUPS.values() for name, listed in group.items()}


class ConnectionOption(click.Option):
    """An option for the nodes to ask, the time allowed or the authentication."""


class Command(click.Command):
    """A command whose help ends with the options of its connection, two examples and its page."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; an error always names the command."""
        try:
            left = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        asks = any((param.name, param.opts) == ("nodes", ["--node"]) for param in self.params)
        if ctx.meta.get(NODES_KEY) and not asks and not ctx.resilient_parsing:
            ctx.fail("this command asks no node; leave out --node")
        return left

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then those of the connection under a heading of their own."""
        own: list[tuple[str, str]] = []
        of_connection: list[tuple[str, str]] = []
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                (of_connection if isinstance(option, ConnectionOption) else own).append(record)
        for title, records in {"Options": own, "Connection": of_connection}.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the page."""
        write_end(ctx, formatter)


def write_end(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write two examples of a command, or of the first two commands of a group, and the address of its page."""
    from gossipkv.cli.examples import examples_of  # noqa: PLC0415  # Only help needs them.

    _, _, path = ctx.command_path.partition(" ")
    with formatter.section("Examples"):
        formatter.write("".join(f"{'':{formatter.current_indent}}{line}\n" for line in examples_of(path)))
    listed = COMMANDS.get(path.partition(" ")[0])
    formatter.write(f"\nDocumentation: {DOCS}/{'README' if listed is None else listed.page}.md\n")
