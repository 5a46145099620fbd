"""`loadtest`: puts servers under load, checks every answer, and reports the result."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

import click

from gossipkv.cli import FAILED
from gossipkv.cli.credentials import credential_options, credentials, tls_files
from gossipkv.cli.help import Command
from gossipkv.cli.loadtest_view import LiveView, compared, outcome
from gossipkv.cli.options import DEFAULT_NODE, JSON, AskedNodes, duration_ms, nodes_or_usual, usual_nodes
from gossipkv.cli.output import note, print_json
from gossipkv.cli.screen import draw
from gossipkv.cli.usage import node_address
from gossipkv.errors import ConfigError, GossipKVError, TimedOut
from gossipkv.interrupt import INTERRUPTED
from gossipkv.loadtest import documents, limits, report
from gossipkv.loadtest.compare import compare
from gossipkv.loadtest.judgement import is_failure, judge
from gossipkv.loadtest.plan import LEVELS, RECORD_BYTES, LoadPlan, LoadTarget, TlsFiles, TruthFile
from gossipkv.loadtest.plan_text import (
    WORKLOADS,
    parse_distribution,
    parse_mix,
    parse_sizes,
    parse_steps,
    parse_target,
    seconds_of,
)
from gossipkv.loadtest.run import run_plan
from gossipkv.settings.node_variables import NODE_VARIABLE
from gossipkv.status.words import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Unpack

    from gossipkv.address import Address
    from gossipkv.loadtest.compare import Comparison
    from gossipkv.loadtest.limits import Limit
    from gossipkv.loadtest.plan import Kind, Level
    from gossipkv.loadtest.result import Result
    from gossipkv.wire.rpc import Value

DRAWN_KEYS: Final = 100_000  # Default number of keys: too many for a processor's cache.
BATCH: Final = 16
RECORDS: Final = 100_000
DRAWN: Final = f"the first {DRAWN_KEYS:,} of the database, by scan"
ASKING_TIMEOUT_MS: Final = 10_000  # A node that is asked for keys may be busy.
ASKING_ATTEMPTS: Final = 3  # For each page: a node that still reads its database from the disk is slow at first.
MAX_NAMED: Final = 8
ARGUMENTS: Final = "gossipkv.loadtest.arguments"
PERCENT: Final = 100.0


class Remembered(Command):
    """A command that keeps its command line, so that a reader of the result can repeat it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as they were written."""
        ctx.meta[ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


class PlainOptions(TypedDict):
    """Options that are fields of the plan as they are."""

    load: bool
    level: Level | None
    ttl_ms: int | None
    sessions: bool
    misses: float
    all_members: bool
    connections: int
    pipeline: int
    processes: int
    rounds: int
    seed: int


class ResultOutputs(NamedTuple):
    """The outputs and limits that the user wants."""

    as_json: bool
    report: Path | None
    limits: tuple[Limit, ...]


def _share(text: str) -> float:
    number = text.strip()
    try:
        found = float(number.removesuffix("%")) / PERCENT if number.endswith("%") else float(number)
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected a share, such as 5% or 0.05") from None
    return found


def _limit(text: str) -> Limit:
    try:
        return limits.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}") from None


def _truth(text: str) -> TruthFile:
    version, separator, path = text.partition("=")
    if os.path.lexists(text) or not separator:
        return TruthFile(text)
    return TruthFile(path, version)


EXISTING: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=Remembered)
@click.option(
    "--node",
    "nodes",
    type=node_address,
    multiple=True,
    metavar="HOST:PORT",
    help=f"Node to load; repeatable.  [default: --node before the command, ${NODE_VARIABLE}, {DEFAULT_NODE}]",
)
@click.option(
    "--target",
    "targets",
    type=parse_target,
    multiple=True,
    metavar="URL",
    help="Another server to load: gossipkv://HOST:PORT, http://HOST:PORT or redis://HOST:PORT/0.",
)
@click.option("--members", "all_members", is_flag=True, help="Load all live members of the cluster as well.")
@click.option("--db", "database", default="", metavar="DB", help="Database to read.")
@click.option(
    "--truth", type=_truth, multiple=True, metavar="[VERSION=]PATH", help="Expected values: a TSV file, or a source."
)
@click.option(
    "--keys",
    type=EXISTING,
    metavar="FILE",
    help=("File of keys to read, one per line.  [default: the keys of --truth]"),
)
@click.option("--workload", type=click.Choice([*WORKLOADS], case_sensitive=False), help="YCSB workload, on a table.")
@click.option(
    "--records",
    type=int,
    metavar="N",
    help=(f"Number of keys that the test makes in a table.  [default with --workload: {RECORDS:,}]"),
)
@click.option("--load", is_flag=True, help="Write all records of --records first.")
@click.option(
    "--value-bytes", default=str(RECORD_BYTES), show_default=True, metavar="N[-M]", help="Sizes of written values."
)
@click.option("--level", type=click.Choice(LEVELS), help="Level of writes.  [default: that of the servers]")
@click.option("--ttl", "ttl_ms", type=duration_ms, metavar="DURATION", help="Lifetime of written records.")
@click.option(
    "--session", "sessions", is_flag=True, help=("Give each user of a table a session, which never reads older data.")
)
@click.option("--distribution", help="uniform, zipf:0.99, hot:0.9/0.1, latest, sequential.  [default: uniform]")
@click.option(
    "--misses", type=_share, default="0", metavar="SHARE", help=("Share of reads for absent keys, such as 5%.")
)
@click.option("--mix", help="Requests by weight, such as get=90,put=8,scan=2.  [default: get; with --batch get_many]")
@click.option("--connections", type=int, default=1, show_default=True, help="Number of connections to each target.")
@click.option("--pipeline", type=int, default=1, show_default=True, help="Requests in flight on each connection.")
@click.option(
    "--batch", type=int, help=(f"Keys of each get_many, and maximum of records of each scan.  [default: {BATCH}]")
)
@click.option("--processes", type=int, default=1, show_default=True, help="Number of processes that send the load.")
@click.option(
    "--rate", metavar="R", help="Requests per second (open loop): 1000, steps 1000,2000, or a ramp 1000..5000/30s."
)
@click.option("--duration", default="10s", show_default=True, help="Duration of a round, or of each step.")
@click.option("--warm-up", default="1s", show_default=True, help="Load before the measurement, which does not count.")
@click.option("--rounds", type=int, default=1, show_default=True, help="Number of rounds.")
@click.option("--timeout", default="5s", show_default=True, help="Silence after which a connection is closed.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of all random choices.")
@click.option(
    "--report",
    "report_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.html",
    help="Write an HTML report to this file.",
)
@click.option(
    "--fail-if",
    type=_limit,
    multiple=True,
    metavar="LIMIT",
    help=("Limit, such as 'p99>2ms' or 'errors>0.1%'; if violated, the exit status is 3."),
)
@click.option("--compare", "pair", type=EXISTING, nargs=2, metavar="A.json B.json", help="Compare two results.")
@credential_options
@JSON
@click.pass_context
def loadtest(
    ctx: click.Context,
    /,
    *,
    nodes: tuple[Address, ...],
    targets: tuple[LoadTarget, ...],
    database: str,
    truth: tuple[TruthFile, ...],
    keys: Path | None,
    workload: str | None,
    records: int | None,
    value_bytes: str,
    distribution: str | None,
    mix: str | None,
    batch: int | None,
    rate: str | None,
    duration: str,
    warm_up: str,
    timeout: str,
    report_file: Path | None,
    fail_if: tuple[Limit, ...],
    pair: tuple[Path, Path] | None,
    as_json: bool,
    **plain: Unpack[PlainOptions],
) -> int:
    """Load servers, check every answer, and measure latency.

    Without --rate, each connection sends its next request after an answer (a closed loop). With --rate, requests
    are sent when they are due, and latencies count from that time. Without --truth and --keys, the test reads the
    first keys of the database and does not compare values. A load on a table (--workload, --records, or a --mix
    with writes) writes values that name their writer, and checks reads against them.

    The exit status is 3 if a value was wrong, a limit of --fail-if was violated, or no request was answered.
    """
    if pair is not None:
        return _compare(ctx, pair, as_json=as_json)
    if report_file is not None:
        _check_place(report_file)
    usual = None if workload is None else WORKLOADS[workload]
    if usual is None:
        weights, batch = _mix(mix, batch)
    else:
        if mix is not None:
            raise click.UsageError("--workload sets the requests; omit --mix")
        weights, batch, records = usual.mix, batch or usual.batch, RECORDS if records is None else records
    asked = _targets(nodes, targets)
    if not database and any(target.scheme != "redis" for target in asked):
        raise click.UsageError(_without_database(asked))
    draws = keys is None and not truth and not records and any(target.scheme == "gossipkv" for target in asked)
    plan = LoadPlan(
        targets=asked,
        database=database,
        truth=truth,
        keys=DRAWN if draws else None if keys is None else str(keys),
        records=records or 0,
        value_bytes=parse_sizes(value_bytes),
        distribution=parse_distribution(distribution or (usual.shape if usual else "uniform")),
        mix=weights,
        batch=batch,
        steps=parse_steps(rate, seconds_of(duration)),
        warm_up_s=seconds_of(warm_up),
        timeout_s=seconds_of(timeout),
        tls=_tls(),
        **plain,
    )
    result = _run_with_drawn_keys(plan) if draws else _run(plan)
    return _conclude(
        replace(result, command=_command(ctx, nodes, targets)), ResultOutputs(as_json, report_file, fail_if)
    )


def _tls() -> TlsFiles | None:
    files = tls_files()
    return None if files is None else TlsFiles(*(None if file is None else str(file) for file in files))


def _run(plan: LoadPlan) -> Result:
    shown = credentials()
    with LiveView() as view:
        return run_plan(plan, view, shown)


def _run_with_drawn_keys(plan: LoadPlan) -> Result:
    """Run with keys of the database; the result says so in place of the temporary file's name."""
    with _drawn_keys(plan) as file:
        result = _run(replace(plan, keys=str(file)))
    return replace(result, plan={**result.plan, "keys": DRAWN})


def _conclude(result: Result, wanted: ResultOutputs) -> int:
    """Write the outputs, and return the exit status."""
    verdicts = [limit.judge(result) for limit in wanted.limits]
    judgement = judge(result, verdicts)
    if wanted.as_json:
        print_json(json.loads(json.dumps({**result.to_json(), "limits": [asdict(verdict) for verdict in verdicts]})))
    else:
        draw(outcome(result, judgement))
    if wanted.report is not None:
        wanted.report.write_text(report.render(result, verdicts), encoding="utf-8")
        note(f"report: {wanted.report}")
    if is_failure(result, verdicts):
        note(f"gossipkv: {'; '.join([judgement.headline, *judgement.reasons])}")
        return FAILED
    return INTERRUPTED if result.ended == "interrupted" else 0


def _targets(nodes: Sequence[Address], targets: Sequence[LoadTarget]) -> tuple[LoadTarget, ...]:
    """Return the given targets, or else the default nodes of every command."""
    asked = nodes if targets else nodes_or_usual(nodes)
    return (*(LoadTarget("gossipkv", node) for node in asked), *targets)


def _mix(text: str | None, batch: int | None) -> tuple[dict[Kind, float], int]:
    """Return the kinds of requests with weights, and their number of keys; `--batch` alone means `get_many`."""
    mix = parse_mix(text or ("get" if batch in {None, 1} else "get_many"))
    if not {"get_many", "scan", "put_many"} & set(mix):
        if batch not in {None, 1}:
            raise click.UsageError(
                "--batch is for get_many, put_many and scan, and --mix has none of them; omit --batch"
            )
        return mix, 1
    return mix, BATCH if batch is None else batch


@contextlib.contextmanager
def _drawn_keys(plan: LoadPlan) -> Iterator[Path]:
    """Yield a file with the first keys of the database, one a line, for the duration of the block."""
    nodes = [target.address for target in plan.targets if target.scheme == "gossipkv"]
    keys = [key for key in _first_keys(nodes, plan.database, is_table=plan.is_written) if b"\n" not in key]
    if not keys:
        raise ConfigError(f"{plan.database} has no keys to read; give keys with --keys or --truth")
    with tempfile.TemporaryDirectory(prefix="gossipkv-loadtest-") as directory:
        file = Path(directory, "keys")
        file.write_bytes(b"".join(key + b"\n" for key in keys))
        yield file


def _first_keys(nodes: Sequence[Address], database: str, *, is_table: bool) -> list[bytes]:
    """Return the first keys; after a timeout ask again, from the last key on.

    Raises:
        TimedOut: the node goes on being silent.
    """
    keys: list[bytes] = []
    silences = 0  # Consecutive timeouts.
    with AskedNodes(nodes, ASKING_TIMEOUT_MS).connect() as client:
        while (left := DRAWN_KEYS - len(keys)) > 0:
            try:
                start = keys[-1] + b"\0" if keys else None
                for key, _ in (client.table if is_table else client.dataset)(database).scan(start=start, limit=left):
                    keys.append(key)
                    silences = 0
            except TimedOut as error:
                silences += 1
                if silences == ASKING_ATTEMPTS:
                    raise
                note(f"gossipkv: {error.message}; reading the keys of {database} again")
            else:
                break
    return keys


def _without_database(asked: Sequence[LoadTarget]) -> str:
    """Return the error for a missing `--db`, with the datasets that the first answering node has."""
    nodes = [target.address for target in asked if target.scheme == "gossipkv"]
    advice = "name the database to read with --db"
    if not nodes:
        return f"{advice}, such as --db geo"
    try:
        with AskedNodes(nodes, ASKING_TIMEOUT_MS).connect() as client:
            listed = [database for database in client.databases() if database.get("kind") == "dataset"]
            names = sorted(dict.fromkeys(printable(str(database.get("name"))) for database in listed))
            shown = ", ".join(names[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED} more" * (len(names) > MAX_NAMED))
            return f"{advice}; {client.address} has {shown or 'none'}"
    except GossipKVError:
        return f"{advice}, such as --db geo"


def _command(ctx: click.Context, nodes: Sequence[Address], targets: Sequence[LoadTarget]) -> list[str]:
    """Return the command line that repeats the test; nodes named by the environment are added."""
    arguments: tuple[str, ...] = ctx.meta[ARGUMENTS]
    named = [] if nodes or targets else [part for node in usual_nodes() for part in ("--node", node)]
    return ["gossipkv", "loadtest", *named, *arguments]


def _check_place(file: Path) -> None:
    """Refuse a report file that cannot be written, before the test begins."""
    folder = file.absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"--report {file}: the directory {folder} does not exist")
    if not os.access(file if file.exists() else folder, os.W_OK):
        raise ConfigError(f"--report {file}: the file is not writable")


def _refuse_others(ctx: click.Context) -> None:
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name not in {"pair", "as_json"} and ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--compare reads two results and sends no load; omit {parameter.opts[0]}")


def _compare(ctx: click.Context, pair: tuple[Path, Path], *, as_json: bool) -> int:
    _refuse_others(ctx)
    comparison = compare(*(documents.load(path) for path in pair))
    if as_json:
        print_json(_comparison_fields(comparison))
    else:
        draw(compared(comparison))
    return 0


def _comparison_fields(comparison: Comparison) -> dict[str, Value]:
    return {
        "rounds": list(comparison.rounds),
        "measures": {
            measure.name: {
                "a": list(measure.first),
                "b": list(measure.second),
                "change": measure.change,
                "difference": measure.difference.value,
            }
            for measure in comparison.measures
        },
        "unlike": {
            what: {name: [first, second] for name, first, second in unlike}
            for what, unlike in (("plan", comparison.plans), ("machine", comparison.machines))
        },
    }
