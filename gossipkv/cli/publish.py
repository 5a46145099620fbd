"""`publish`: a finished directory becomes a version of a dataset."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TimeRemainingColumn

from gossipkv.address import parse_address
from gossipkv.cli import FAILED
from gossipkv.cli.build import counted, version_of
from gossipkv.cli.flags import load_settings
from gossipkv.cli.help import Command
from gossipkv.cli.options import JSON, AskedNodes, ask_map, ask_within
from gossipkv.cli.output import note, print_json
from gossipkv.cli.screen import description, progress
from gossipkv.cli.status import wait_until_served
from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.build.memory import limits
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.offline.preview import preview
from gossipkv.dataset.offline.publishing import Receipt, SourceDatabase, content_of, refuse_unfinished
from gossipkv.dataset.source.remote import files_of
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import ConfigError, GossipKVError, ServiceError, SourceError, UnknownDatabase
from gossipkv.settings.databases import NAMES, DatabaseSettings, is_name, minimum_of
from gossipkv.settings.masking import MASK, is_url, mask_url
from gossipkv.status.codec import decode
from gossipkv.status.reports import InfoReport, status_report
from gossipkv.status.words import plain, size_text
from gossipkv.wire.key_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.client.blocking import Client
    from gossipkv.dataset.offline.preview import Preview
    from gossipkv.dataset.source.listing import SourceVersion
    from gossipkv.settings.config import Config
    from gossipkv.settings.masking import Option
    from gossipkv.status.reports import DatasetReport
    from gossipkv.wire.rpc import Value

SHOWN_BYTES = 60  # A preview shows this much of a value.
LOOK_MS = 10_000  # Time allowed for a node's look at its source.


def _name(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not (is_name(text) and not text.startswith("_")):
        raise click.BadParameter(f"{text!r}: {NAMES}, and do not begin with _")
    return text


@dataclass(frozen=True, slots=True)
class _Given:
    """The files to publish, and the settings by which they are read."""

    database: str
    listed: SourceVersion
    job: BuildJob
    config: Config


@click.command(cls=Command)
@click.argument("database", metavar="DB", callback=_name)
@click.argument("path", metavar="PATH")
@click.option(
    "--version",
    metavar="VERSION",
    callback=_name,
    help=(
        "Name of the version.  [default: the time, such as 2026-11-20-101530, appended to the newest "
        "name if needed to sort after it]"
    ),
)
@click.option(
    "--wait", is_flag=True, help=("Wait until the version serves at every node; the exit status is 3 if it cannot.")
)
@click.option(
    "--dry-run", is_flag=True, help=("Only describe the version that a node would read from PATH; ask no node.")
)
@click.option(
    "--source",
    metavar="ROOT",
    help=("Source root of the nodes, as seen from this machine.  [default: the node's setting]"),
)
@click.option(
    "--link",
    is_flag=True,
    help=("Link files instead of copying them; a later change of PATH then damages the version."),
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings file of the nodes, with the format of DB and access to its store.  [default: $GOSSIPKV_CONFIG]",
)
@ask_within("10s", "one request; with --wait, if given, for the whole wait")
@JSON
@click.pass_context
def publish(
    context: click.Context,
    database: str,
    path: str,
    *,
    version: str | None,
    source: str | None,
    file: Path | None,
    nodes: AskedNodes,
    wait: bool,
    dry_run: bool,
    link: bool,
    as_json: bool,
) -> int:
    """Publish PATH, a finished directory of files or one file, as a version of DB.

    The command first reads PATH as a node would. Then it copies the files under a hidden name and renames the
    directory, so nodes never see an incomplete version. If the source is a URL, `_SUCCESS` is written last instead, and
    nodes must have `require_success_file`. If the command is interrupted, repeat it: it continues.
    """
    given = _given(database, path, load_settings(file, {"source": source}))
    if dry_run:
        return _dry_run(given, path, as_json=as_json)
    is_given = context.get_parameter_source("timeout_ms") is not ParameterSource.DEFAULT
    deadline_s = time.monotonic() + nodes.timeout_ms / 1000 if wait and is_given else math.inf
    with nodes.connect() as client:
        root, options = _root(client, given)
        target = SourceDatabase(root, database, options)
        entry = _entry(client, database)
        name = _choose(target, given, path, version, entry)
        before = _before(target, entry, name)
        with _note_if_ended(f"{database}: {name} is not published yet: repeat the command, and it continues"):
            found = _read(given, f"read {database} {name}")
            _refuse_short(given, found, before)
            is_new = _put(target, name, given, found, link=link)
        goes_on = f"nodes go on loading it; `gossipkv status {database} --wait` waits until it serves"
        with _note_if_ended(f"{database}: {name} is published: {_summary(found)}; {goes_on}"):
            _have_nodes_look(client, f"{mask_url(root)}/{database}", name)
            lacking = list(wait_until_served(client, database, deadline_s)) if wait else []
            now = _entry(client, database)
    serves = now is not None and now.active == name
    if as_json:
        told: Value = None if before is None else {**asdict(before)}
        print_json(_answer(database, name, found) | {"before": told, "serves": serves})
    else:
        click.echo(
            f"{database}: {name}: {_summary(found)}{_against(before, found)}{'' if is_new else '; published before'}"
        )
        if wait and serves:
            click.echo(f"{database}: {name} serves")
    for line in (*found.warnings, *lacking):
        note(f"gossipkv: {line}")
    if now is not None and now.hold not in {None, name}:
        note(f"gossipkv: version {now.hold} of {database} is held until `gossipkv databases release {database}`")
    return FAILED if wait and not serves else 0


@contextlib.contextmanager
def _note_if_ended(line: str) -> Iterator[None]:
    """Say how far the publication came if it is interrupted, or if the node stops answering."""
    try:
        yield
    except (KeyboardInterrupt, ServiceError):
        note(f"gossipkv: {line}")
        raise


def _entry(client: Client, database: str) -> DatasetReport | None:
    """Return what the node knows of the database; None if it knows none."""
    with contextlib.suppress(UnknownDatabase):
        return status_report(client.status(database)).datasets.get(database)
    return None


def _choose(target: SourceDatabase, given: _Given, path: str, version: str | None, entry: DatasetReport | None) -> str:
    """Return the name to publish by; that of PATH itself, if PATH is a version of the source already."""
    here = target.version_at(path if is_url(path) else str(Path(path).resolve()))
    if here is not None and version in {None, here}:
        return here
    known = () if entry is None else entry.versions
    return target.choose(content_of(given.listed), version, known, datetime.now(UTC))


def _put(target: SourceDatabase, name: str, given: _Given, found: Preview, *, link: bool) -> bool:
    receipt = Receipt(content_of(given.listed), found.records, found.source_bytes)
    origin = files_of(given.job.remote, RealFiles())
    with _bar(f"copy {given.database} {name}", found.source_bytes) as (bar, task):
        return target.put(name, given.listed, origin, receipt, link=link, on_copy=lambda size: bar.advance(task, size))


def _given(database: str, path: str, config: Config) -> _Given:
    origin, listed = version_of(path)
    if is_url(path) or Path(path).is_dir():
        refuse_unfinished(path)
    settings = config.databases.get(database, DatabaseSettings())
    if settings.is_table:
        raise ConfigError(
            f"{database} is read from a table (format = {settings.format!r}), and each of its snapshots "
            "is a version: write to that table"
        )
    job = BuildJob.of(listed, ".", remote=origin.remote)
    job = replace(job, format=settings.format, reading=FileReading.by(settings))
    return _Given(database, listed, replace(job, reading=limits(job, config.build_memory)), config)


def _root(client: Client, given: _Given) -> tuple[str, Mapping[str, Option]]:
    """Return the source root as this machine reaches it, with the options of its store.

    Raises:
        ConfigError: it is not known, or cannot be reached from here.
    """
    told = decode(InfoReport, client.info()).source
    root = given.config.source or told.root
    if root is None:
        raise ConfigError(f"the node at {client.address} has no source: give the root with --source ROOT")
    if given.config.source is None and MASK in root:
        raise ConfigError(f"the node's source is {root}: give the full URL with --source ROOT or --config FILE")
    if is_url(root):
        if not (told.require_success_file or given.config.require_success_file):
            raise ConfigError(
                f"{mask_url(root)}: an object store has no rename, so a node could read an incomplete "
                "version: set require_success_file = true on every node first"
            )
        return root, given.config.stores.options(f"{root}/{given.database}") or {}
    if not Path(root).is_dir():
        whose = "the node's source" if given.config.source is None else "the source"
        raise ConfigError(
            f"{whose} is {root}, and this machine has no such directory: give its path here with --source "
            "ROOT, or publish on a machine that has the directory"
        )
    return root, {}


@dataclass(frozen=True, slots=True)
class _Before:
    """The version before: what is known of it."""

    version: str
    records: int | None
    source_bytes: int | None


def _before(target: SourceDatabase, entry: DatasetReport | None, name: str) -> _Before | None:
    """Return the version that serves, or else the newest one before `name` at the source."""
    active = None if entry is None else entry.active
    before = active if active != name else None
    older = [version for version in target.versions() if version < name]
    before = before or max(older, default=None)
    if before is None:
        return None
    receipt = target.receipt(before) if before in older else None
    if receipt is not None:
        return _Before(before, receipt.records, receipt.source_bytes)
    told = None if entry is None else entry.versions.get(before)
    if told is None:
        return _Before(before, None, None)
    is_all_here = told.partition_count is not None and told.partitions_here == str(told.partition_count)
    return _Before(before, told.records if is_all_here else None, told.source_bytes)


def _refuse_short(given: _Given, found: Preview, before: _Before | None) -> None:
    """Raise SourceError if nodes with these settings would not switch to so few records."""
    settings = given.config.databases.get(given.database, DatabaseSettings())
    known = (None, None) if before is None else (before.version, before.records)
    short = minimum_of(given.config, settings).shortage(found.records, *known)
    if short is not None:
        again = "to publish it all the same, give a --config that allows it; it then waits for a hold"
        raise SourceError(f"not published: {short}; {again} (`gossipkv databases hold {given.database} VERSION`)")


def _read(given: _Given, words: str) -> Preview:
    origin = files_of(given.job.remote, RealFiles())
    try:
        with _bar(words, given.listed.size_bytes) as (bar, task):
            return preview(given.job, origin, on_bytes=lambda size: bar.advance(task, size))
    except SourceError:
        if given.database not in given.config.databases:
            note(
                "gossipkv: the files were read without settings: if the nodes have "
                f"[databases.{given.database}], give --config FILE"
            )
        raise


@contextlib.contextmanager
def _bar(words: str, total_bytes: int) -> Iterator[tuple[Progress, TaskID]]:
    with progress(description(), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) as bar:
        yield bar, bar.add_task(words, total=total_bytes)


def _have_nodes_look(client: Client, place: str, version: str) -> None:
    """Make every node look at its source, the asked one last; one that cannot be asked looks by itself in time.

    Raises:
        SourceError: the asked node does not see the version.
    """
    database = place.rpartition("/")[2]
    for member in client.members():
        address = plain(member.get("address"))
        if member.get("state") == "alive" and address != str(client.address):
            suppressed = contextlib.suppress(GossipKVError, ValueError)
            with suppressed, AskedNodes([parse_address(address)], LOOK_MS).connect() as other:
                other.call("refresh", database)
    try:
        seen = ask_map(client, "refresh", database).get(database)
    except UnknownDatabase:
        seen = None
    if not isinstance(seen, list) or version not in seen:
        raise SourceError(
            f"{place}/{version} was written, but the node at {client.address} does not see it: its source "
            "may be another directory; name the right one with --source ROOT"
        )


def _dry_run(given: _Given, path: str, *, as_json: bool) -> int:
    found = _read(given, f"read {path}")
    settings = given.config.databases.get(given.database, DatabaseSettings())
    short = minimum_of(given.config, settings).shortage(found.records, None, None)
    if as_json:
        print_json(_answer(given.database, None, found) | {"shortage": short})
    else:
        click.echo(f"{given.database}: {_summary(found)}")
        for key, value in found.first:
            cut = value[:SHOWN_BYTES]
            click.echo(f"  {shown(key)}\t{shown(cut)}{'…' if len(cut) < len(value) else ''}")
    for line in (*found.warnings, *(() if short is None else (f"nodes would not switch to this version: {short}",))):
        note(f"gossipkv: {line}")
    return 0 if short is None else FAILED


def _answer(database: str, version: str | None, found: Preview) -> dict[str, Value]:
    return {
        "database": database,
        "version": version,
        "format": found.format,
        "files": found.files,
        "bytes": found.source_bytes,
        "records": found.records,
        "function": found.function,
        "relies": found.relies,
        "first": [[key, value] for key, value in found.first],
        "warnings": [*found.warnings],
    }


def _summary(found: Preview) -> str:
    how = f"partitioned by {found.function}" if found.relies else f"to be partitioned by {found.function}"
    return (
        f"{counted(found.records, 'record')}, {size_text(found.source_bytes)} in {counted(found.files, 'file')} of "
        f"{found.format}, {how}"
    )


def _against(before: _Before | None, found: Preview) -> str:
    if before is None:
        return ", the first version"
    known = []
    if before.records is not None:
        known.append(f"{counted(before.records, 'record')} ({found.records - before.records:+,})")
    if before.source_bytes is not None:
        known.append(size_text(before.source_bytes))
    return f", after {before.version}{' with ' if known else ''}{', '.join(known)}"
