"""`cluster`: nodes as processes on this machine."""

from __future__ import annotations

import dataclasses
import re
import signal
import sys
import time
from pathlib import Path
from typing import Final

import click
from rich.progress import MofNCompleteColumn, SpinnerColumn, TimeElapsedColumn
from rich.text import Text

from gossipkv.cli import FAILED, CommandGroup
from gossipkv.cli.options import JSON, usual_nodes
from gossipkv.cli.output import note, print_json
from gossipkv.cli.screen import add_row, columns, description, draw, progress
from gossipkv.cli.signals import ended_like_ctrl_c
from gossipkv.client import blocking
from gossipkv.errors import GossipKVError, LocalError
from gossipkv.launcher import Cluster, NodeFailed, NodeStatus, NotUp
from gossipkv.launcher.control import command
from gossipkv.launcher.plan import MAX_NODES, SEEDS, is_path, load
from gossipkv.launcher.status import Unread, signal_name, unread
from gossipkv.settings.config import Config
from gossipkv.settings.node_variables import NODE_VARIABLE
from gossipkv.status.words import duration_text, plain

WATCH_S: Final = 0.5
# Enough for small datasets to be readable once the nodes are ready; a large build takes hours.
READ_PATIENCE_S: Final = 10.0
READ_POLL_S: Final = 0.05
LOOK_MS: Final = 1000  # Time for an answer from the address that commands ask by default.
STYLES: Final = {"ready": "green", "starting": "yellow", "stopped": "yellow", "ended": "red"}


def _default_directory() -> Path:
    """Return the directory beside the default data directory of a node."""
    return Config().data.with_name("gossipkv-cluster")


DATA: Final = click.option(
    "--data",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=_default_directory,
    show_default="a platform data directory",
    metavar="DIR",
    help="Directory of the cluster's files, which identifies the cluster.",
)


def _index(text: str) -> int:
    if re.fullmatch(r"n?[1-9][0-9]{0,3}", text) is None:
        raise click.BadParameter(f"{text!r}: expected the number of a node from `cluster status`")
    return int(text.removeprefix("n"))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{text!r}: expected NAME=VALUE")
    return name.replace("-", "_"), value


def _signal(text: str) -> int:
    name = text.upper().removeprefix("SIG")
    try:
        return int(signal.Signals[f"SIG{name}"])
    except KeyError:
        raise click.BadParameter(f"{text!r}: expected the name of a signal, as KILL, TERM, STOP, CONT") from None


NODE_NUMBER: Final = click.argument("index", metavar="I", type=_index)


@click.group(cls=CommandGroup, no_args_is_help=False)
def cluster() -> None:
    """Run a cluster on this machine, with one process per node.

    `up` starts a cluster and stays in the foreground. Use `status`, `kill`, `start` and `down` from another shell, or
    after `up --detach`. Nodes are numbered from 1.
    """


@cluster.command()
@click.option(
    "--nodes", type=click.IntRange(1, MAX_NODES), metavar="N", help=("Number of nodes.  [default: as before, else 3]")
)
@click.option("--source", metavar="ROOT", help="Source root of all nodes.  [default: as before, else none]")
@click.option("--replication", type=click.IntRange(1, MAX_NODES), metavar="R", help="Copies of each dataset partition.")
@click.option("--base-port", type=click.IntRange(1, 65_535), metavar="P", help="Use exactly the ports P, P+1, ...")
@click.option(
    "--http/--no-http",
    default=None,
    help=("Answer HTTP and show the status page at each node.  [default: as before, else yes]"),
)
@click.option(
    "--http-base-port",
    type=click.IntRange(1, 65_535),
    metavar="P",
    help=("Use exactly the ports P, P+1, ... for HTTP."),
)
@click.option(
    "--resp-base-port",
    type=click.IntRange(1, 65_535),
    metavar="P",
    help="Answer RESP (Redis clients) at exactly the ports P, P+1, ...",
)
@click.option(
    "--set", "settings", type=_pair, multiple=True, metavar="NAME=VALUE", help=("Setting for all nodes; repeatable.")
)
@click.option("--detach", is_flag=True, help="Return when the nodes are ready, and leave them running.")
@DATA
@JSON
def up(
    directory: Path,
    *,
    nodes: int | None,
    source: str | None,
    replication: int | None,
    base_port: int | None,
    http: bool | None,
    http_base_port: int | None,
    resp_base_port: int | None,
    settings: tuple[tuple[str, str], ...],
    detach: bool,
    as_json: bool,
) -> None:
    """Start a cluster, and report when every node serves every dataset. Ctrl-C ends the cluster.

    If a dataset takes more than 10 s after that, or cannot be built, the command names the reason.

    The nodes end with this command, even if it is killed by SIGKILL; with --detach they run until `down`. Omitted
    options keep their last values for this directory.
    """
    remembered = {name: _absolute(value) if value and is_path(name) else value for name, value in settings}
    launcher = Cluster(
        directory,
        nodes=nodes,
        source=None if source is None else _absolute(source),
        replication=replication,
        base_port=base_port,
        http=True if http is None and load(directory) is None else http,
        http_base_port=http_base_port,
        resp_base_port=resp_base_port,
        settings=remembered,
    )
    click.get_current_context().with_resource(ended_like_ctrl_c())
    began_s = time.monotonic()
    try:
        ready = _start(launcher, detach=detach)
    except NodeFailed as error:
        _note(error)
        if forget := " ".join(f"--set {name}=" for name, value in remembered.items() if value):
            note(f"gossipkv: the settings are kept although the start failed; to forget them: {forget}")
        raise click.exceptions.Exit(FAILED) from None
    try:
        left = _await_readable(ready)
        _tell(launcher.name, ready, running=True, as_json=as_json)
        if not as_json:
            words = (
                f"to end the cluster: {command('down', launcher.directory)}" if detach else "Ctrl-C ends the cluster"
            )
            what = "nodes are ready" if left else "ready"
            click.echo(f"{what} in {time.monotonic() - began_s:.1f} s; {words}")
            for line in _how_to_ask([node.address for node in ready]):
                click.echo(line)
        for blocked in left:
            note(f"gossipkv: {blocked.database} cannot be read yet at {blocked.node}: {blocked.why}")
        sys.stdout.flush()
        if not detach:
            _stay(launcher)
    except BaseException:
        if not detach:
            _end(launcher)
        raise


def _start(launcher: Cluster, *, detach: bool) -> list[NodeStatus]:
    """Start the cluster, and show progress until every node is ready."""
    with progress(SpinnerColumn(), description(), MofNCompleteColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task("nodes are ready", total=None)

        def show(nodes: list[NodeStatus]) -> None:
            bar.update(task, total=len(nodes), completed=sum(node.state == "ready" for node in nodes))

        return launcher.up(detach=detach, on_wait=show)


def _await_readable(nodes: list[NodeStatus]) -> list[Unread]:
    """Return once all datasets can be read at all nodes, or no more will be soon; return unreadable ones once each."""
    give_up_s = time.monotonic() + READ_PATIENCE_S
    with progress(SpinnerColumn(), description(), TimeElapsedColumn()) as bar:
        task = bar.add_task("")
        while True:
            left: dict[str, Unread] = {}
            for blocked in unread(nodes):
                if left.setdefault(blocked.database, blocked).is_coming:
                    left[blocked.database] = blocked  # A node that is building knows the cause; the others wait for it.
                if time.monotonic() > give_up_s:
                    return [*left.values()]
            coming = next((blocked for blocked in left.values() if blocked.is_coming), None)
            if coming is None:
                return [*left.values()]
            bar.update(task, description=f"{coming.database} at {coming.node}: {coming.why}")
            time.sleep(READ_POLL_S)


def _how_to_ask(addresses: list[str]) -> list[str]:
    """Return how to make commands ask this cluster; nothing if they ask it by default."""
    usual = usual_nodes()
    if not set(usual).isdisjoint(addresses):
        return []
    return [
        f"commands ask {usual[0]} by default, where {_occupant(usual[0])}; to ask this cluster instead:",
        f"export {NODE_VARIABLE}={','.join(addresses[:SEEDS])}",
    ]


def _occupant(address: str) -> str:
    try:
        with blocking.Client([address], timeout_ms=LOOK_MS, follows=False).dial() as client:
            try:
                info = client.info()
            except GossipKVError:
                return "another program than GossipKV listens"
    except (GossipKVError, ValueError):
        return "nothing listens"
    return f"node {plain(info.get('node'))} of cluster {plain(info.get('cluster'))} answers"


def _absolute(path: str) -> str:
    """Return a URL unchanged, and a path as absolute, since it is remembered."""
    try:
        return path if "://" in path else str(Path(path).expanduser().absolute())
    except RuntimeError:  # The user in `~name` is unknown, which the node reports.
        return path


def _stay(launcher: Cluster) -> None:
    """Wait for Ctrl-C, or until another command ends the cluster; report nodes that end by themselves."""
    noted: set[tuple[int, int]] = set()
    while True:
        try:
            nodes = launcher.status()
        except NotUp:
            note("gossipkv: another command ended the cluster")
            return
        for node in nodes:
            if node.failed and (node.index, node.log_from) not in noted:
                noted.add((node.index, node.log_from))
                _note(NodeFailed.of(node))
        time.sleep(WATCH_S)


def _end(launcher: Cluster) -> None:
    try:
        launcher.down()
    except KeyboardInterrupt:  # A second Ctrl-C ends the nodes at once.
        launcher.down(grace_s=0)
        raise


@cluster.command()
@DATA
@JSON
def status(directory: Path, *, as_json: bool) -> None:
    """Show the nodes, their addresses and states. The exit status is 0 even if the cluster is down."""
    launcher = _known(directory)
    try:
        _tell(launcher.name, launcher.status(), running=True, as_json=as_json)
    except NotUp as error:
        _tell(launcher.name, launcher.remembered(), running=False, as_json=as_json)
        note(f"gossipkv: {error}")


@cluster.command()
@NODE_NUMBER
@click.option(
    "--signal", "number", type=_signal, default="KILL", show_default=True, metavar="NAME", help="Signal to send."
)
@DATA
def kill(index: int, directory: Path, *, number: int) -> None:
    """Kill node I, or send it a signal: STOP and CONT freeze and thaw the node, TERM ends it in order."""
    launcher = _known(directory)
    if number == signal.SIGKILL:
        node = launcher.kill(index)
    elif number == signal.SIGTERM:
        node = launcher.stop(index)
    else:
        node = launcher.send(index, number)
    click.echo(f"{node.name}: {node.end() if node.state == 'ended' else f'{signal_name(number)} sent'}")


@cluster.command()
@NODE_NUMBER
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="P",
    help=("Port to listen on from now on; 0 means any free port."),
)
@DATA
def start(index: int, directory: Path, *, port: int | None) -> None:
    """Start the ended node I again on its data, and return when the node is ready."""
    try:
        node = _known(directory).start(index, port=port)
    except NodeFailed as error:
        _note(error)
        raise click.exceptions.Exit(FAILED) from None
    click.echo(f"{node.name} is ready at {node.address}")


@cluster.command()
@click.option("--now", is_flag=True, help="Kill the nodes without waiting for requests in flight.")
@DATA
def down(directory: Path, *, now: bool) -> None:
    """End all nodes. Their data stays for the next `up`. The command is idempotent."""
    launcher = _known(directory)
    if not (launcher.down(grace_s=0) if now else launcher.down()):
        note(f"gossipkv: the cluster in {directory} was not running")


def _known(directory: Path) -> Cluster:
    """Return the cluster of that directory, up or not.

    Raises:
        LocalError: there is none.
    """
    launcher = Cluster(directory)
    if not launcher.remembered():
        raise LocalError(f"no cluster in {directory}; to make one: {command('up', directory)}")
    return launcher


def _note(error: NodeFailed) -> None:
    """Report the end of a node, with the last lines of its log."""
    note(f"gossipkv: {error.details['words']!s}")
    lines = error.details["said"]
    for line in lines if isinstance(lines, list) else ():
        note(f"    {line!s}")


def _tell(name: str | None, nodes: list[NodeStatus], *, running: bool, as_json: bool) -> None:
    if as_json:
        print_json({"cluster": name, "up": running, "nodes": [dataclasses.asdict(node) for node in nodes]})
        return
    if name is not None:
        draw(Text(f"cluster {name}", "table.title"))
    names = "node", "address", "http", "state", "process", "up", "data"
    table = columns(*names, kept=("node", "state"), right=("process",))
    for node in nodes:
        state = node.end() if node.state == "ended" else node.state
        add_row(
            table,
            node.name,
            node.address,
            node.http or "",
            Text(state, STYLES[node.state] if running else "dim"),
            "" if node.process is None else str(node.process),
            "" if node.uptime_s is None else duration_text(int(node.uptime_s)),
            node.data,
        )
    draw(table)
