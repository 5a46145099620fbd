"""`table export`: writes the records of a table to a file that `table import` and sources read.

The file appears under its name once it is whole.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import os
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, final

import click
import lz4.frame
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from gossipkv.cli.decisions import allowed
from gossipkv.cli.help import Command
from gossipkv.cli.options import HEX_KEYS, JSON, AskedNodes, ask_within, key_bytes
from gossipkv.cli.output import json_line, note, part_text, tell
from gossipkv.cli.screen import description, progress
from gossipkv.client.reads import page_of
from gossipkv.client.tables import explained
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import BadRequest, LocalError, ProtocolError
from gossipkv.status.words import plain
from gossipkv.wire.key_text import shown

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from gossipkv.client import blocking
    from gossipkv.wire.rpc import Value

GROUP_ROWS: Final = 65_536  # A row group of Parquet, which is in memory at once.
GROUP_BYTES: Final = 8 << 20  # A page is at most a group, and readers take pages of 25 MiB.
SHOWN_RECORDS: Final = 1_000  # The progress bar is redrawn after so many records.
SUFFIXES: Final = {".tsv": "tsv", ".tab": "tsv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
COMPRESSED: Final[dict[str, Callable[[BinaryIO], contextlib.AbstractContextManager[Stream]]]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=6),
    ".zst": lambda stream: zstd.ZstdFile(stream, "wb"),
    ".lz4": lambda stream: lz4.frame.LZ4FrameFile(stream, mode="wb"),
}
PAGE: Final = ask_within("10s", "one page")


class Stream(Protocol):
    """A file, or what compresses into one."""

    def write(self, data: bytes, /) -> int:
        """Write all of it."""


def tsv_line(key: bytes, value: bytes, _expires_at: int | None) -> bytes:
    """Return a line `key TAB value`, without any escapes.  Raises BadRequest: readers would see another record."""
    if b"\t" in key or b"\n" in key or b"\n" in value or key.startswith(b"\xef\xbb\xbf"):
        words = "has a TAB or a line feed, which TSV cannot express: write JSON lines or Parquet (--format)"
        raise BadRequest(f"the record of {shown(key)} {words}")
    return b"%b\t%b\n" % (key, value)


def record_line(key: bytes, value: bytes, expires_at: int | None) -> bytes:
    """Return a line `{"key", "value"}`, with `expires_at` of a record that expires."""
    return json_line({"key": key, "value": value, **({} if expires_at is None else {"expires_at": expires_at})})


LINES: Final = {"tsv": tsv_line, "json": record_line}


@final
class Parquet:
    """Columns `key` and `value`, and perhaps `expires_at`, through pyarrow."""

    def __init__(self, stream: Stream, *, expiry: bool) -> None:
        """Raises LocalError: pyarrow is not installed."""
        try:
            self._arrow = arrow = importlib.import_module("pyarrow")
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            words = "Parquet is written through pyarrow, which is not installed: pip install 'gossipkv[parquet]'"
            raise LocalError(words) from error
        columns = [("key", arrow.binary()), ("value", arrow.binary()), ("expires_at", arrow.int64())]
        self._schema = arrow.schema(columns if expiry else columns[:2])
        self._writer = parquet.ParquetWriter(stream, self._schema, use_dictionary=False)
        self._rows, self._size_bytes = list[tuple[bytes, bytes, int | None]](), 0

    def add(self, key: bytes, value: bytes, expires_at: int | None) -> None:
        """Add a row; a full group is written."""
        self._rows.append((key, value, expires_at))
        self._size_bytes += len(key) + len(value)
        if len(self._rows) == GROUP_ROWS or self._size_bytes >= GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        """Write the last group and the footer."""
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        fields = enumerate(self._schema)
        columns = [self._arrow.array([row[place] for row in self._rows], field.type) for place, field in fields]
        self._writer.write_table(self._arrow.Table.from_arrays(columns, schema=self._schema))
        self._rows, self._size_bytes = [], 0


@click.command(cls=Command)
@click.argument("name", metavar="TABLE")
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["tsv", "json", "parquet"]),
    help=("Format of FILE.  [default: by the name of FILE]"),
)
@click.option("--start", type=key_bytes, metavar="KEY", help="First key (inclusive).")
@click.option("--end", type=key_bytes, metavar="KEY", help="End key (exclusive).")
@click.option("--prefix", type=key_bytes, metavar="PREFIX", help="Only keys with this prefix.")
@click.option(
    "--partial",
    is_flag=True,
    help="Pass over partitions that give no page within --timeout, and name them; the exit status is 0.",
)
@click.option("--expiry", is_flag=True, help="Write times of expiry too, as expires_at; this reads records twice.")
@HEX_KEYS
@PAGE
@JSON
def export(
    name: str,
    path: Path,
    form: str | None,
    *,
    start: bytes | None,
    end: bytes | None,
    prefix: bytes | None,
    partial: bool,
    expiry: bool,
    nodes: AskedNodes,
    as_json: bool,
) -> None:
    """Write the records of TABLE to FILE in key order, as TSV, JSON lines or Parquet.

    The suffix of FILE sets the format; a second suffix .gz, .zst or .lz4 compresses lines. FILE appears, or is
    replaced, when it is complete. The export is no snapshot: each page has the records of the time of its read.
    """
    lines = path.with_suffix("") if path.suffix in COMPRESSED else path
    form = form or {**SUFFIXES, ".parquet": "parquet"}.get(lines.suffix)
    if form is None or (form == "parquet" and lines != path):
        raise click.UsageError(f"{path.name}: unknown format: give --format, or a name with .tsv, .jsonl or .parquet")
    if expiry and form == "tsv":
        raise click.UsageError("TSV has no place for --expiry: write JSON lines or Parquet")
    records = 0
    missing: list[Value] = []
    with (
        nodes.connect() as client,
        _whole_file(path) as stream,
        _writer(form, stream, expiry=expiry) as write,
        progress(SpinnerColumn(), description(), TextColumn("{task.completed:,}"), TimeElapsedColumn()) as bar,
    ):
        task = bar.add_task(f"{name}: records written", total=None)
        found: Iterable[tuple[bytes, bytes]]
        if partial:
            keys: dict[str, Value] = {"start": start, "end": end, "prefix": prefix}
            keys = {option: key for option, key in keys.items() if key is not None}
            found = _readable(client, name, {**keys, **allowed(nodes.timeout_ms)}, missing)
        else:
            found = client.table(name).scan(start=start, end=end, prefix=prefix)
        for record in _with_expiries(client, name, found) if expiry else ((*row, None) for row in found):
            write(*record)
            records += 1
            if records % SHOWN_RECORDS == 0:
                bar.update(task, completed=records)
    answer: dict[str, Value] = {"table": name, "records": records, "file": str(path)}
    answer |= {"missing": missing} if partial else {}
    tell(answer, f"{path}: {records:,} records of {name}", as_json=as_json)


def _readable(
    client: blocking.Client, name: str, options: dict[str, Value], missing: list[Value]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of a partial scan; name each part that it leaves out, and add it to `missing`."""
    cursor: Value = None
    while True:
        more: dict[str, Value] = {} if cursor is None else {"cursor": cursor}
        match client.call("scan", name, {**options, **more, "partial": True}):
            case [*page, list(left_out)]:
                rows, cursor, _ = page_of(page)
                yield from rows
                for entry in left_out:
                    match entry:
                        case [part, reason]:
                            note(f"gossipkv: {name}: {part_text(part)} cannot be read: {plain(reason)}")
                            missing.append(part)
            case _:
                raise ProtocolError(f"{client.address} answered something else than a page of a partial scan")
        if cursor is None:
            return


def _with_expiries(
    client: blocking.Client, name: str, records: Iterable[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes, int | None]]:
    """Yield records as of another read, which tells their expiry; those that are gone by then are left out."""
    keys = deque[bytes]()

    def asked() -> Iterator[list[Value]]:
        for key, _ in records:
            keys.append(key)
            yield [name, key, {"explain": True}]

    for answer in client.pipeline("get", asked()):
        key, ((value, expires_at), _) = keys.popleft(), explained(answer)
        if value is not None:
            yield key, value, expires_at


@contextlib.contextmanager
def _writer(form: str, stream: Stream, *, expiry: bool) -> Iterator[Callable[[bytes, bytes, int | None], object]]:
    """Yield a function that writes a record in a format.  Raises LocalError."""
    if form == "parquet":
        with contextlib.closing(Parquet(stream, expiry=expiry)) as file:
            yield file.add
    else:
        yield lambda *record: stream.write(LINES[form](*record))


@contextlib.contextmanager
def _whole_file(path: Path) -> Iterator[Stream]:
    """Yield a stream into a file that gets its name once all is written and synced; remove it after a failure."""
    target = path.resolve()
    beside = target.with_name(f"{target.name}.tmp")
    try:
        with beside.open("wb") as file:
            compress = COMPRESSED.get(path.suffix, contextlib.nullcontext[Stream])
            with compress(file) as stream:
                yield stream
            file.flush()
            os.fsync(file.fileno())
        beside.rename(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    RealFiles().sync_directory(target.parent)
