"""The `gossipkv` command.

Every command is a module function that is loaded when it is named: `gossipkv get` in a script costs a client, not a
node.  Data goes to standard output and everything else to standard error.  A command returns its exit status (None is
0); an exception ends here, as one line and a status:

    0    done
    1    not found: a key, a database, a version
    2    wrong use: an option, a setting, a request that fails at each repetition
    3    failed: no node answered, data is damaged, the system refused
    130  interrupted (Ctrl-C)
    141  the reader of standard output went away

Read in this order:

    help.py            the list of commands, and their help
    examples.py        invocations that help shows
    usage.py           errors of wrong use
    options.py         options that several commands share
    credentials.py     options for the authentication of nodes and of the command
    output.py          results for programs
    signals.py         signals that end a command as Ctrl-C does
    screen.py          tables and progress for people
    reads.py           `get`, `mget`, `scan`
    writes.py          `put`, `delete`
    node.py            `ping`, `refresh`
    backup.py          `backup`, `restore`
    status.py          `status`
    gossip.py          `members`, `tree`
    databases.py       `databases`, `rollback`
    decisions.py       shared by the commands that decide on tables
    table.py           `table`
    ranges.py          `table`: ranges
    range_deletion.py  `table`: deletion of ranges
    table_import.py    `table import`
    table_export.py    `table export`
    table_changes.py   `table changes`
    placement.py       `node`; `table plan`, `table reshard`
    quarantine.py      `table quarantine`
    metadata.py        `metadata`: the acceptors of tables
    flags.py           settings from a command line
    settings.py        `config`
    serve.py           `serve`
    http.py            `http`: a gateway without a node
    keys.py            `keys`: the key ring
    users.py           `users`
    certificates.py    `certificates`
    build.py           `build`
    publish.py         `publish`
    contents.py        the contents of files and directories of ours
    files.py           `inspect`, `verify`
    loadtest_view.py   the view of a load test
    loadtest.py        `loadtest`
    cluster.py         `cluster`
    demo.py            `demo`
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Final, NoReturn

import click

import gossipkv
from gossipkv import garbage
from gossipkv.cli.help import COMMANDS, GROUPS, NODES_KEY, Command, write_end
from gossipkv.cli.output import note
from gossipkv.cli.usage import node_address, usage_text
from gossipkv.errors import (
    WRITES_ARE,
    BadRequest,
    ConfigError,
    GossipKVError,
    LocalError,
    TooLarge,
    UnknownDatabase,
    UnknownVersion,
)
from gossipkv.interrupt import INTERRUPTED, raise_again, repeat_dropped
from gossipkv.processes.streams import flush_or_drop
from gossipkv.settings.nearest import near

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_FOUND: Final = 1
WRONG_USE: Final = 2
FAILED: Final = 3
READER_GONE: Final = 141

COMPLETION_VARIABLE: Final = "_GOSSIPKV_COMPLETE"
LINE: Final = 150  # Characters of a command's first sentence, in the help of its group.

# Names of these commands in other stores.
ELSEWHERE: Final = {"set": "use `gossipkv put` to write a record", "del": "use `gossipkv delete` to delete a record"}


class CommandGroup(click.Group):
    """Commands; an error about an unknown command names the nearest one."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command and its arguments."""
        commands = self.list_commands(ctx)
        if args[0] not in commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            advice = near(args[0], commands)
            if args[0] in ELSEWHERE and self is gossipkv_command:
                advice = f"; {WRITES_ARE}: {ELSEWHERE[args[0]]}"
            ctx.fail(f"no such command {args[0]!r}{advice}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with its whole first sentence."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(LINE)) for name, command in commands if command])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the page."""
        write_end(ctx, formatter)


class Commands(CommandGroup):
    """The commands, each loaded when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(f"gossipkv.cli.{COMMANDS[cmd_name].module}")
        except ModuleNotFoundError as error:
            if sys.platform.startswith("linux"):
                raise
            raise LocalError(
                f"`{cmd_name}` needs Linux on x86-64 or aarch64, since {error.name} is missing here; only "
                "clients run elsewhere"
            ) from error
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in their groups, without loading them."""
        del ctx
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), listed.line) for name, listed in commands.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--node",
    type=node_address,
    multiple=True,
    metavar="HOST:PORT",
    expose_value=False,
    callback=lambda context, _, nodes: context.meta.update({NODES_KEY: nodes}),
    help="Node that COMMAND asks, unless COMMAND has a --node of its own; repeatable.",
)
@click.version_option(gossipkv.__version__, prog_name="gossipkv", message="%(prog)s %(version)s")
def gossipkv_command() -> None:
    """GossipKV: a key-value store in which every node is the same program and there is no coordinator.

    `gossipkv demo` shows it; `gossipkv serve --source ROOT` runs a node.
    """
    garbage.keep()  # Garbage collection skips all that is loaded by now.
    raise_again()
    repeat_dropped()


def main() -> NoReturn:
    """Run the command line and exit."""
    if COMPLETION_VARIABLE in os.environ:  # A shell asks for completions; click answers and exits.
        gossipkv_command.main(prog_name="gossipkv")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line, and return the exit status."""
    if not arguments:
        with gossipkv_command.make_context("gossipkv", [], resilient_parsing=True) as context:
            click.echo(gossipkv_command.get_help(context), err=True)
        return WRONG_USE
    try:
        # `gossipkv_command.main` would turn a broken pipe into a status of its own.
        with gossipkv_command.make_context("gossipkv", list(arguments)) as context:
            status = gossipkv_command.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:  # `--help` and `--version`.
        return end.exit_code
    except BaseException as error:  # noqa: BLE001  # All errors end here; defects are raised again.
        return _ended_by(error)
    return status if isinstance(status, int) else 0


def _ended_by(error: BaseException) -> int:
    """Say in one line why a command ended, and return its status; a defect is raised again with its traceback."""
    if isinstance(error, BaseExceptionGroup):
        error = _cause(error)
    match error:
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case BrokenPipeError():
            flush_or_drop(sys.stdout)
            return READER_GONE
        case click.ClickException():
            context = getattr(error, "ctx", None)
            path = context.command_path if isinstance(context, click.Context) else "gossipkv"
            line, status = f"gossipkv: {_one_line(usage_text(error))} (see {path} --help)", WRONG_USE
        case GossipKVError():
            line, status = f"gossipkv: {_one_line(str(error))}", _status_of(error)
        case OSError():
            where = "" if error.filename is None else f"{error.filename}: "
            line, status = f"gossipkv: {where}{error.strerror or error}", FAILED
            flush_or_drop(sys.stdout)
        case _:
            raise error
    note(line)
    return status


def _status_of(error: GossipKVError) -> int:
    match error:
        case UnknownDatabase() | UnknownVersion():
            return NOT_FOUND
        case BadRequest() | TooLarge() | ConfigError():
            return WRONG_USE
    return FAILED


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the cause of a group: a defect if there is one, or else the first error."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop(0)
        if isinstance(error, BaseExceptionGroup):
            pending += error.exceptions
        else:
            leaves.append(error)
    expected = (GossipKVError, OSError, KeyboardInterrupt)
    defects = [error for error in leaves if not isinstance(error, expected)]
    return (defects or leaves)[0]


def _one_line(text: str) -> str:
    return " ".join(text.split())
