"""`inspect` and `verify`: sorted files and data directories without a node, and comparison of a table's replicas."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from gossipkv.cli import FAILED, contents
from gossipkv.cli.help import Command
from gossipkv.cli.options import JSON, AskedNodes, ask_map, ask_within
from gossipkv.cli.output import print_json
from gossipkv.cli.screen import add_row, columns, draw, progress
from gossipkv.dataset.local.manifest import MANIFEST
from gossipkv.errors import Corrupt
from gossipkv.node.identity import NODE as IDENTITY
from gossipkv.status.words import plain, size_text
from gossipkv.storage.sorted_file import SortedFile
from gossipkv.table.records.verify import EQUAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.wire.rpc import Value


@click.command(cls=Command)
@click.argument("path", metavar="FILE", type=click.Path(exists=True, path_type=Path))
@JSON
def inspect(path: Path, *, as_json: bool) -> None:
    """Describe FILE: a sorted file, a data directory, a document in it, or its table store."""
    if path.is_dir() and contents.is_data_directory(path):
        _inspect_directory(path, as_json=as_json)
    elif path.is_dir() and (path / MANIFEST).is_file():
        _inspect_document(path / MANIFEST, as_json=as_json)
    elif path.is_dir() and contents.is_store(path):
        _write(contents.describe_store(path), as_json=as_json)
    elif path.is_dir():
        raise click.BadParameter(f"{path} is no data directory, built version or store", param_hint="FILE")
    elif contents.is_document(path):
        _inspect_document(path, as_json=as_json)
    else:
        _inspect_sorted_file(path, as_json=as_json)


def _inspect_sorted_file(path: Path, *, as_json: bool) -> None:
    with SortedFile(path) as file:
        description: dict[str, Value] = {**file.describe()}
        metadata = file.metadata
        if metadata:
            try:
                description["metadata"] = json.loads(metadata)
            except ValueError:
                description["metadata"] = metadata
        try:
            description["first_key"] = next((key for key, _ in file.scan(limit=1)), None)
            description["last_key"] = next((key for key, _ in file.scan(limit=1, reverse=True)), None)
        except Corrupt as damage:
            description["damage"] = str(damage)
    if as_json:
        print_json(description)
        return
    raw = int(file_bytes) if isinstance(file_bytes := description.get("key_bytes"), int) else 0
    values = description.get("value_bytes")
    raw += values if isinstance(values, int) else 0
    _draw_fields({**description, "overhead": _overhead(description, raw)})


def _overhead(description: Mapping[str, Value], raw_bytes: int) -> str:
    size_bytes, records = description.get("size_bytes"), description.get("records")
    if not isinstance(size_bytes, int) or not isinstance(records, int) or not records:
        return "-"
    return f"{(size_bytes - raw_bytes) / records:.1f} bytes a record over keys and values"


def _inspect_document(path: Path, *, as_json: bool) -> None:
    kind, body = contents.document(path)
    _write({"file": str(path), "kind": kind, **json.loads(json.dumps(body))}, as_json=as_json)


def _inspect_directory(path: Path, *, as_json: bool) -> None:
    _, node = contents.document(path / IDENTITY)
    active = {
        item.name: contents.document(item)[1].get("version")
        for item in sorted((path / "active").glob("*"))
        if item.is_file() and not item.name.endswith(".tmp")
    }
    versions: list[dict[str, Value]] = [
        {
            "database": manifest.identity.database,
            "version": manifest.identity.version,
            "active": active.get(manifest.identity.database) == manifest.identity.version,
            "partitions": manifest.identity.partitions,
            "function": manifest.identity.function,
            "records": manifest.records,
            "duplicates": manifest.duplicates,
            "size_bytes": manifest.size_bytes,
            "compression": manifest.compression,
        }
        for manifest in contents.manifests(path)
    ]
    tables = [contents.describe_store(store) for store in contents.stores_of(path)]
    if as_json:
        fields: dict[str, Value] = {"directory": str(path), **json.loads(json.dumps(node)), "versions": list(versions)}
        print_json({**fields, "tables": tables[0] if tables else None})
        return

    click.echo(f"{path}: data directory of node {node.get('node')}, cluster {node.get('cluster')}\n")
    names, numbers = ("database", "version", "state", "function", "compression"), ("partitions", "records", "size")
    table = columns(*names, *numbers, kept=("state",), right=numbers)
    for version in versions:
        state = Text("ACTIVE", "green") if version["active"] else "held"
        size_bytes = version["size_bytes"]
        assert isinstance(size_bytes, int)
        add_row(
            table,
            *(str(version[name]) for name in names[:2]), state, *(str(version[name]) for name in names[3:]),
            str(version["partitions"]), plain(version["records"]), size_text(size_bytes),
        )  # fmt: skip
    draw(table if versions else "no built versions")
    for described in tables:
        click.echo("\ntables")
        _draw_fields(described)


def _write(description: Mapping[str, Value], *, as_json: bool) -> None:
    if as_json:
        print_json({**description})
    else:
        _draw_fields(description)


@click.command(cls=Command)
@click.argument("path", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--table", metavar="TABLE", help="Compare the replicas of TABLE instead.")
@ask_within("10s", "each partition of a table")
@JSON
def verify(path: Path | None, *, table: str | None, nodes: AskedNodes, as_json: bool) -> int:
    """Check all checksums below PATH, or compare the replicas of a table.

    PATH is a sorted file, a document, a data directory, its table store, the directory of a cluster, or a source
    (root, database or version). Nodes may be running on PATH. The output has a line for each damaged file, with the
    offset. The exit status is 3 after damage, and 2 if PATH is none of these.

    With --table, the nodes compare their live records of each partition, again until --timeout if there are writes. A
    partition with one replica, or with one that does not answer, counts as not compared. The exit status is 3 if
    replicas differ or could not be compared.
    """
    if (path is None) == (table is None):
        raise click.UsageError("give either PATH or --table TABLE")
    if table is not None:
        return _verify_table(table, nodes, as_json=as_json)
    assert path is not None
    place = contents.look(path)
    if place is None:
        raise click.UsageError(f"{path}: not a file, data directory, cluster or source of GossipKV")
    results = _check_all(place.files, place.stores)
    troubled = [checked for checked in results if checked.trouble is not None]
    total_bytes = sum(checked.size_bytes for checked in results)
    if as_json:
        damaged: list[Value] = [{"file": str(checked.path), **_evidence(checked)} for checked in troubled]
        counts: dict[str, Value] = {"kind": place.kind, "files": len(results), "size_bytes": total_bytes}
        print_json({**counts, "damaged": damaged, "source_files": place.source_files})
    else:
        for checked in troubled:
            click.echo(str(checked.trouble))
        verdict = f"{len(troubled)} damaged" if troubled else "all bytes are as written"
        whose = f" of a {place.kind}" if place.kind in {"cluster", "source"} else ""
        if results:
            click.echo(f"{_files(len(results))}{whose}, {size_text(total_bytes)}: {verdict}")
        if place.source_files:
            click.echo(f"{_files(place.source_files)}{whose} not checked: GossipKV keeps no checksums of source files")
    return FAILED if troubled else 0


def _verify_table(table: str, nodes: AskedNodes, *, as_json: bool) -> int:
    verified: list[dict[str, Value]] = []
    with nodes.connect() as client, progress(TextColumn("verify"), TextColumn("{task.completed}")) as bar:
        task = bar.add_task("verify")
        # The node answers before the client's timeout.
        asked: dict[str, Value] = {"timeout_ms": nodes.timeout_ms * 9 // 10}
        while True:
            partition = ask_map(client, "verify_table", table, asked)
            verified += [partition] if partition else []
            bar.update(task, completed=len(verified))
            if partition.get("next") is None:
                break
            asked["start"] = partition["next"]
    bad = [partition for partition in verified if partition["verdict"] != EQUAL]
    if as_json:
        print_json({"table": table, "partitions": len(verified), "not_equal": [*bad]})
    else:
        for partition in bad:
            why = f"{plain(partition['verdict'])}: {plain(partition['why'])}"
            click.echo(f"{table} {plain(partition['partition'])}: {why}")
        partitions = f"{len(verified):,} partition{'s' if len(verified) != 1 else ''}"
        click.echo(f"{table}: {partitions}: " + (f"{len(bad):,} not equal" if bad else "all replicas are equal"))
    return FAILED if bad else 0


def _files(count: int) -> str:
    return f"{count} file{'s' if count != 1 else ''}"


def _evidence(checked: contents.CheckedFile) -> dict[str, Value]:
    error = checked.trouble
    assert error is not None
    if isinstance(error, Corrupt):
        return {"file": error.file, "offset": error.offset, "reason": error.reason}
    return {"offset": None, "reason": error.message}


def _check_all(paths: list[Path], stores: tuple[Path, ...]) -> list[contents.CheckedFile]:
    columns = TextColumn("verify"), BarColumn(), DownloadColumn(binary_units=True)
    sizes = [path.stat().st_size if path.exists() else 0 for path in paths]
    results = []
    with progress(*columns) as bar:
        task = bar.add_task("verify", total=sum(sizes) + sum(map(contents.store_bytes, stores)))
        before = 0
        for path, size_bytes in zip(paths, sizes, strict=True):
            results.append(contents.check(path, partial(_advance, bar, task, before, size_bytes)))
            before += size_bytes
            bar.update(task, completed=before)
        results = [checked for checked in results if checked.trouble is None or not contents.is_gone(checked.path)]
        for store in stores:
            results += contents.check_store(store, partial(bar.advance, task))
    return results


def _advance(bar: Progress, task: TaskID, before_bytes: int, size_bytes: int, share: float) -> None:
    bar.update(task, completed=before_bytes + share * size_bytes)


def _draw_fields(fields: Mapping[str, Value]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        add_row(table, name, Text(_field(name, value), "red" if name == "damage" else ""))
    draw(table)


def _field(name: str, value: Value) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict):
        return "  ".join(f"{key}={plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return f"{len(value):,} {name}"
    return plain(value)
