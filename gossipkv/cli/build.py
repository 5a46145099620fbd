"""`build`: sorted files from a source, without a node."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from gossipkv import quantity
from gossipkv.cli.options import JSON, size_bytes
from gossipkv.cli.output import print_json
from gossipkv.cli.screen import progress, size_text
from gossipkv.dataset.build_job import BuildJob, perform
from gossipkv.dataset.manifest import Manifest, to_body
from gossipkv.dataset.source import Source, SourceFile, SourceVersion
from gossipkv.environment import RealFiles
from gossipkv.errors import SourceError, StorageError
from gossipkv.storage.builder import MIN_MEMORY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.wire.rpc import Value


@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.argument("dest", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--partitions",
    type=click.IntRange(1, 16_384),
    metavar="N",
    help="Sorted files to make.  [default: one a source file]",
)
@click.option("--format", "form", type=click.Choice(["tsv"]), default="tsv", show_default=True, help="Of the source.")
@click.option("--compression", type=click.Choice(["none", "lz4"]), default="none", show_default=True)
@click.option(
    "--memory",
    "memory_bytes",
    type=size_bytes,
    default="256MiB",
    show_default=True,
    metavar="SIZE",
    help="For sorting.",
)
@JSON
def build(
    source: Path, dest: Path, *, partitions: int | None, form: str, compression: str, memory_bytes: int, as_json: bool
) -> None:
    """Make sorted files in the directory DEST from SOURCE, one file or a directory of files.

    Lines are `key TAB value`.  Of a key that comes more than once the last one counts, files in the order of their
    names.  DEST must be empty or not there; it is whole when the command ends with status 0, and untouched otherwise.
    """
    del form  # There is one so far.
    if memory_bytes < MIN_MEMORY_BYTES:
        raise click.BadParameter(f"at least {quantity.show(MIN_MEMORY_BYTES, quantity.SIZE)}", param_hint="--memory")
    begin_s = time.monotonic()
    version = _version_of(source)
    with _empty_directory(dest):
        job = BuildJob.of(version, str(dest), partitions=partitions, compression=compression)
        manifest = _perform_with_progress(job, memory_bytes)
        RealFiles().sync_directory(dest.absolute().parent)
    if as_json:
        told: dict[str, Value] = json.loads(json.dumps(to_body(manifest)))
        print_json({**told, "directory": str(dest), "records": manifest.records})
    else:
        _say_what(dest, manifest, time.monotonic() - begin_s)


def _perform_with_progress(job: BuildJob, memory_bytes: int) -> Manifest:
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with progress(*columns) as bar:
        task = bar.add_task(f"{job.database}/{job.version}", total=1.0)
        return perform(
            job,
            RealFiles(),
            memory_bytes=memory_bytes,
            on_progress=lambda state: bar.update(task, completed=state.done),
        )


def _version_of(source: Path) -> SourceVersion:
    """The source as a version: named by its last two directories, or by its file."""
    files = RealFiles()
    place = source.absolute()
    if place.is_dir():
        version = Source(place.parent.parent, files).version(place.parent.name, place.name)
        if not version.files:
            raise SourceError(f"{source}: no data files in this directory", {"file": str(source)})
        found = version.files
    else:
        entry = files.stat(place.resolve())
        if entry.kind != "file":
            raise SourceError(f"{source}: neither a file nor a directory", {"file": str(source)})
        found = (SourceFile(place.name, str(place.resolve()), entry.size_bytes, entry.modified_ns),)
    return SourceVersion(_name(place.parent.name), _name(place.stem if place.is_file() else place.name), found)


def _name(text: str) -> str:
    """What a database or version may be called that is as near to `text` as can be."""
    return re.sub(r"[^-_a-zA-Z0-9]+", "-", text)[:200] or "-"


@contextlib.contextmanager
def _empty_directory(dest: Path) -> Iterator[None]:
    """DEST, made if need be; as it was before if the build fails."""
    try:
        existed = dest.exists()
        if existed and any(dest.iterdir()):
            raise StorageError(f"{dest}: not empty; name a directory that is not there yet", {"file": str(dest)})
        dest.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{dest}: {error.strerror}", {"file": str(dest)}) from error
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for leftover in dest.iterdir():
                leftover.unlink()
            if not existed:
                dest.rmdir()
        raise


def _say_what(dest: Path, manifest: Manifest, seconds: float) -> None:

    replaced = f"; {manifest.duplicates:,} more were replaced by later ones" if manifest.duplicates else ""
    files = f"{len(manifest.held)} file{'s' if len(manifest.held) != 1 else ''}"
    click.echo(
        f"{dest}: {manifest.records:,} records in {files}, {size_text(manifest.size_bytes)}, "
        f"from {size_text(manifest.source_bytes)} in {seconds:.1f} s{replaced}"
    )
