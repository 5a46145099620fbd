"""`build`: sorted files from a source, without a node."""

from __future__ import annotations

import contextlib
import json
import re
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.progress import BarColumn, TaskProgressColumn, TimeRemainingColumn

from gossipkv.cli.help import Command
from gossipkv.cli.options import JSON, size_bytes
from gossipkv.cli.output import note, print_json
from gossipkv.cli.screen import description, progress
from gossipkv.cli.signals import ended_like_ctrl_c
from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.build.steps import BuildResources, Lanes, perform
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.local.manifest import VersionManifest, to_body
from gossipkv.dataset.offline.destinations import LocalDestination
from gossipkv.dataset.source.declared_partitions import Declared, write_declared
from gossipkv.dataset.source.files import SourceFile
from gossipkv.dataset.source.listing import DECLARED_FILE, MAX_FILES, SUCCESS_FILE, SourceRoot, SourceVersion
from gossipkv.dataset.source.remote import files_of
from gossipkv.environment.cores import cores
from gossipkv.environment.real_files import BuildFiles, RealFiles
from gossipkv.errors import SourceError, StorageError
from gossipkv.keyspace.partitioner import FUNCTIONS
from gossipkv.settings import quantity
from gossipkv.settings.csv_dialect import CsvDialect
from gossipkv.settings.databases import ENCODINGS, FORMATS, NULLS, PRESHARDED
from gossipkv.settings.masking import is_url
from gossipkv.status.words import size_text
from gossipkv.storage.builder import MIN_MEMORY_BYTES
from gossipkv.wire.key_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.environment.seam import FileEntry
    from gossipkv.wire.rpc import Value

_SOME: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def partition_list(text: str) -> tuple[int, ...]:
    """Parse a list such as `0,4-7` into ascending numbers of partitions, each once."""
    found: set[int] = set()
    for part in text.split(","):
        match = _SOME.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match is not None else (1, 0)
        if first > last or last >= MAX_FILES:
            raise click.BadParameter(f"{part.strip()!r}: expected partitions such as 0,4-7, below {MAX_FILES:,}")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def csv_dialect(text: str) -> CsvDialect:
    """Parse the table `csv` of a database's settings, with or without its braces."""
    table = text if text.startswith("{") else f"{{ {text} }}"
    try:
        return CsvDialect.read(tomllib.loads(f"csv = {table}")["csv"])
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{text!r}: {error}; write it as in a settings file: 'delimiter = \"\\t\"'") from None


@click.command(cls=Command)
@click.argument("source", metavar="SOURCE")
@click.argument("dest", metavar="DEST", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--partitions",
    type=click.IntRange(1, MAX_FILES),
    metavar="N",
    help="Number of sorted files to build.  [default: as many as source files]",
)
@click.option(
    "--function",
    type=click.Choice(FUNCTIONS),
    help="Partition function.  [default: that of the source's files if they are N; else sequins]",
)
@click.option("--only", type=partition_list, metavar="LIST", help="Build only these partitions, such as 0,4-7.")
@click.option(
    "--presharded",
    type=click.Choice(PRESHARDED),
    default="probe",
    show_default=True,
    help=(
        "With --only, skip source files of other partitions: found by probing, as declared in "
        f"{DECLARED_FILE}, or never."
    ),
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help=("Format of the source.  [default: detected from its files]")
)
@click.option(
    "--key",
    multiple=True,
    default=("key",),
    show_default="key",
    metavar="FIELD",
    help="Field of the key. Several fields are joined, or become a MessagePack array.",
)
@click.option(
    "--value",
    multiple=True,
    default=("value",),
    show_default="value",
    metavar="FIELD",
    help="Field of the value. Several fields, or * for all, become rows.",
)
@click.option("--separator", metavar="TEXT", help="Separator between the fields of a key.")
@click.option("--encoding", type=click.Choice(ENCODINGS), default="json", show_default=True, help="Encoding of rows.")
@click.option(
    "--nulls", type=click.Choice(NULLS), default="omit", show_default=True, help=("Treatment of nulls in rows.")
)
@click.option(
    "--csv",
    type=csv_dialect,
    default="",
    metavar="SETTINGS",
    help='CSV options as in a settings file, such as \'delimiter = ";", header = false, columns = ["a", "b"]\'.',
)
@click.option("--compression", type=click.Choice(["none", "lz4"]), default="none", show_default=True)
@click.option(
    "--memory",
    "memory_bytes",
    type=size_bytes,
    default="256MiB",
    show_default=True,
    metavar="SIZE",
    help="Memory for sorting.",
)
@click.option(
    "--lanes",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Number of threads.  [default: one per core, fewer for small sources]",
)
@JSON
def build(
    source: str,
    dest: Path,
    *,
    partitions: int | None,
    function: str | None,
    only: tuple[int, ...] | None,
    presharded: str,
    form: str | None,
    key: tuple[str, ...],
    value: tuple[str, ...],
    separator: str | None,
    encoding: str,
    nulls: str,
    csv: CsvDialect,
    compression: str,
    memory_bytes: int,
    lanes: int | None,
    as_json: bool,
) -> None:
    """Build sorted files in the directory DEST from SOURCE: a file, a directory of files, or a URL for fsspec.

    DEST must be empty or absent, and may be below a node's source as <database>/<version>. If a key occurs more
    than once, the last record counts, in the order of file names. DEST is complete if the exit status is 0, and
    unchanged otherwise. Sorted files that fit together are copied as they are.
    """
    if memory_bytes < MIN_MEMORY_BYTES:
        raise click.BadParameter(f"at least {quantity.show(MIN_MEMORY_BYTES, quantity.SIZE)}", param_hint="--memory")
    begin_s = time.monotonic()
    origin, version = version_of(source)
    job = BuildJob.of(version, str(dest), partitions=partitions, compression=compression, remote=origin.remote)
    reading = FileReading(_fields(key), _fields(value), separator=separator, encoding=encoding, nulls=nulls, csv=csv)
    job = replace(job, function=function, format=form, reading=reading, wanted=only, presharded=presharded)
    if only is not None and only[-1] >= job.partitions:
        raise click.BadParameter(
            f"{only[-1]}: the partitions are 0 to {job.partitions - 1}; set --partitions N for more",
            param_hint="--only",
        )
    with ended_like_ctrl_c(), _empty_directory(dest):
        manifest = _perform_with_progress(job, memory_bytes, _lanes(job, memory_bytes, lanes))
        if only is None:
            _declare(dest, manifest)
        RealFiles().sync_directory(dest.absolute().parent)
    if as_json:
        body: dict[str, Value] = json.loads(json.dumps(to_body(manifest)))
        print_json({**body, "directory": str(dest), "records": manifest.records})
    else:
        _say_what(dest, manifest, time.monotonic() - begin_s)


def _fields(names: tuple[str, ...]) -> str | tuple[str, ...]:
    return names[0] if len(names) == 1 else names


def _lanes(job: BuildJob, memory_bytes: int, most: int | None) -> Lanes:
    """Return a thread for each core, as far as the memory suffices."""
    count = max(1, min(most or cores(), memory_bytes // MIN_MEMORY_BYTES))
    return Lanes(count, memory_bytes, job.reading)


def _perform_with_progress(job: BuildJob, memory_bytes: int, lanes: Lanes) -> VersionManifest:
    columns = description(), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with progress(*columns) as bar:
        task = bar.add_task(f"{job.database}/{job.version}", total=1.0)
        resources = BuildResources(
            memory_bytes, lanes, on_progress=lambda state: bar.update(task, completed=state.done)
        )
        return perform(job, BuildFiles(), resources)


def _declare(dest: Path, manifest: VersionManifest) -> None:
    """Write the files that make the directory a version for nodes and people; the success file comes last."""
    place = LocalDestination(dest, RealFiles())
    identity = manifest.identity
    held = {file.name: (partition,) for partition, file in enumerate(manifest.files) if file is not None}
    place.put(DECLARED_FILE, write_declared(Declared(identity.function, identity.partitions, held)))
    place.put(SUCCESS_FILE, b"")


def version_of(source: str) -> tuple[SourceRoot, SourceVersion]:
    """Return the source as a version, named by its last two directories or by its file, and the source that is read."""
    place = source.rstrip("/") if is_url(source) else str(Path(source).absolute())
    origin = SourceRoot.open(place if is_url(source) else str(Path(place).parent.parent), RealFiles(), {})
    if origin.remote is not None:
        place = source = origin.root  # The root shows no password.
    above, _, last = place.rpartition("/")
    entry, path = _looked_at(origin, place, source)
    if entry.kind == "directory":
        version = origin.listed(path, "", "")
        if not version.files:
            raise SourceError(f"{source}: no data files in this directory", {"file": source})
    elif entry.kind == "file":
        last = last.partition(".")[0] if last[:1] != "." else last
        name = path.rpartition("/")[2]
        file = SourceFile(name, path, entry.size_bytes, entry.modified_ns, entry.tag)
        version = SourceVersion("", "", (file,))
    else:
        raise SourceError(f"{source}: neither a file nor a directory", {"file": source})
    return origin, replace(version, database=_name(above.rpartition("/")[2]), name=_name(last))


def _looked_at(origin: SourceRoot, place: str, source: str) -> tuple[FileEntry, str]:
    """Return the entry at a place, and its path without links."""
    files = files_of(origin.remote, RealFiles())
    try:
        path = files.resolve(place)
        return files.stat(path), path
    except OSError as error:
        raise SourceError(f"{source}: cannot be read: {error.strerror}", {"file": source}) from error


def _name(text: str) -> str:
    """Return the valid name of a database or version that is nearest to `text`."""
    return re.sub(r"[^-_a-zA-Z0-9]+", "-", text)[:200] or "-"


@contextlib.contextmanager
def _empty_directory(dest: Path) -> Iterator[None]:
    """Make DEST if it is missing; restore its former state if the build fails."""
    try:
        missing = [place for place in (dest, *dest.parents) if not place.exists()]
        if not missing and any(dest.iterdir()):
            raise StorageError(f"{dest}: not empty; name a new directory", {"file": str(dest)})
        dest.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{dest}: {error.strerror}", {"file": str(dest)}) from error
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for leftover in dest.iterdir():
                leftover.unlink()
            for place in missing:
                place.rmdir()
        raise


def _say_what(dest: Path, manifest: VersionManifest, seconds: float) -> None:
    replaced = (
        f"; {manifest.duplicates:,} more were replaced by later records of the same key" if manifest.duplicates else ""
    )
    count, of = len(manifest.files_here), len(manifest.files)
    files = counted(count, "file") if count == of else f"{count:,} of {counted(of, 'file')}"
    click.echo(
        f"{dest}: {counted(manifest.records, 'record')} in {files} by {manifest.identity.function}, "
        f"{size_text(manifest.size_bytes)}, from {size_text(manifest.source_bytes)} of {manifest.format} "
        f"in {seconds:.1f} s{replaced}"
    )
    for warning in manifest.warnings:
        note(warning)
    stray = manifest.first_stray
    if stray is not None:
        more = manifest.strays - 1
        strays = f", and {more:,} more {'is' if more == 1 else 'are'} not" if more else ""
        elsewhere = (
            "; rebuild the other partitions with --presharded never, since they may lack this key" if count < of else ""
        )
        note(
            f"{stray.file}: byte {stray.offset:,}: the key {shown(stray.key)} is not in its partition "
            f"under {manifest.voided}{strays}; all records were partitioned again{elsewhere}"
        )


def counted(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
