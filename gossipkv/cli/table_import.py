"""`table import`: puts the records of files into a table, several batches at once, and goes on where it ended.

Records are put in the order of the files, a few batches at once; those of one key stay in order.  The *position* is
that up to which all are put; with `--state` it is saved each second.  So an import that was killed puts the records of
the last moments again, in the same order.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import deque
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, final

import click
import trio
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from gossipkv.cli.credentials import credentials
from gossipkv.cli.help import Command
from gossipkv.cli.options import JSON, AskedNodes, ask_within, duration_ms, nodes_or_usual
from gossipkv.cli.output import note, tell
from gossipkv.cli.range_deletion import FOR_NOW, PATIENCE_S, PAUSE_S
from gossipkv.cli.screen import description, progress
from gossipkv.cli.writes import LEVEL
from gossipkv.client.trio_client import Client
from gossipkv.dataset.formats.detect import batches, detect_file
from gossipkv.dataset.formats.reading import COLUMN_FORMATS, FileReading
from gossipkv.dataset.source.files import SourceFile
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.environment import small_file
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import ConfigError, GossipKVError, SourceError
from gossipkv.settings.databases import FORMATS
from gossipkv.settings.tables import MAX_KEY_BYTES, MAX_VALUE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gossipkv.client.tables import Level
    from gossipkv.client.trio_client import Table
    from gossipkv.storage.batch import RecordBatch
    from gossipkv.wire.rpc import Value

Record = tuple[bytes, bytes] | tuple[bytes, bytes, int]  # A key, a value, and the time of expiry if it has one.
Records = list[Record]

WRITERS: Final = 8  # Batches under way: more of them cost memory, and make nodes no faster.
CHUNK_RECORDS: Final = WRITERS * 250  # Divided by keys, each part is one request of `put_many` nearly always.
CHUNK_BYTES: Final = 4 << 20
SAVE_S: Final = 1.0  # Interval between saves of the position.
STATE_FILE: Final = small_file.Kind("state of an import", 1 << 20, is_private=False)
FIELDS: Final = re.compile("`(key|value)`")  # Settings of a database, in errors of files; here these are options.
BATCH: Final = ask_within("10s", "one batch")


class ImportPosition(NamedTuple):
    """A place in the files: so many records of the file of this number are put, and all of the files before it."""

    file: int = 0
    records: int = 0


class Chunk(NamedTuple):
    """Records to put, in their order, between two positions."""

    begin: ImportPosition
    end: ImportPosition
    records: Records


@final
class ImportedFiles:
    """The records of files from a position on, in chunks; only one chunk is in memory."""

    def __init__(
        self, files: Sequence[SourceFile], form: str | None, reading: FileReading, expiry_field: str | None = None
    ) -> None:
        self.files = files
        self.size_bytes = sum(file.size_bytes for file in files)
        self.read_bytes = 0  # Approximate: Parquet is read in several places.
        self._form, self._reading = form, reading
        self._expiry_field = expiry_field  # None: no record has an expiry of its own.

    def chunks(self, position: ImportPosition) -> Iterator[Chunk]:
        """Yield the chunks behind a position.  Raises SourceError, StorageError."""
        for number, file in enumerate(self.files):
            if number >= position.file:
                skipped = position.records if number == position.file else 0
                yield from self._chunks_of(number, file, skipped)
            self.read_bytes = sum(file.size_bytes for file in self.files[: number + 1])

    def _chunks_of(self, number: int, file: SourceFile, skipped: int) -> Iterator[Chunk]:
        before = self.read_bytes
        with SourceReader(RealFiles(), file) as reader:
            form = self._form or detect_file(reader, self._reading) or "tsv"
            records, size_bytes, begin, at = Records(), 0, skipped, 0
            with contextlib.closing(batches(form, reader, self._reading)) as found, self._expiries(file, form) as own:
                for batch in found:
                    self.read_bytes = before + min(reader.read_bytes, file.size_bytes)
                    if at + len(batch) <= skipped and self._expiry_field is None:
                        at += len(batch)
                        continue
                    for (key, value), expiry in zip(batch, own, strict=False):
                        at += 1
                        if at <= skipped:
                            continue
                        if len(key) > MAX_KEY_BYTES:
                            raise _long_key(file, at, batch, key)
                        records.append((key, value, *expiry))
                        size_bytes += len(key) + len(value)
                        if len(records) == CHUNK_RECORDS or size_bytes >= CHUNK_BYTES:
                            yield Chunk(ImportPosition(number, begin), ImportPosition(number, at), records)
                            records, size_bytes, begin = [], 0, at
            yield Chunk(ImportPosition(number, begin), ImportPosition(number + 1, 0), records)

    @contextlib.contextmanager
    def _expiries(self, file: SourceFile, form: str) -> Iterator[Iterator[tuple[()] | tuple[int]]]:
        """Yield the expiries of a file's records, which is read once more; each in a tuple, empty if there is none."""
        if self._expiry_field is None:
            yield repeat(())
            return
        name = self._expiry_field
        if form not in {"json", *COLUMN_FORMATS}:
            words = f"{file.path}: {form} has no fields beside key and value, so omit --expiry-field"
            raise SourceError(words, {"file": file.path})
        reading = replace(self._reading, value=(name,), encoding="json")
        with SourceReader(RealFiles(), file) as reader, contextlib.closing(batches(form, reader, reading)) as found:
            rows = (json.loads(value).get(name) for batch in found for _, value in batch)
            yield (() if at is None else (at,) for at in rows)


def _long_key(file: SourceFile, number: int, batch: RecordBatch, key: bytes) -> SourceError:
    offset = next(offset for offset, found in zip(batch.offsets(), batch.keys(), strict=True) if found == key)
    reason = f"record {number:,} has a key of {len(key):,} bytes; keys of a table have at most {MAX_KEY_BYTES:,}"
    return SourceError(f"{file.path}: byte {offset:,}: {reason}", {"file": file.path, "offset": offset})


@final
class ImportProgress:
    """The position up to which all records are put."""

    def __init__(self, position: ImportPosition) -> None:
        self.position = position
        self.records = 0  # Records that are put, behind the position as well.
        self._under_way: deque[Chunk] = deque()  # In their order.
        self._left: dict[ImportPosition, int] = {}  # Parts that are not put, by the end of the chunk.

    def begin(self, chunk: Chunk, parts: int) -> None:
        """Note that so many parts of a chunk are under way."""
        self._under_way.append(chunk)
        self._left[chunk.end] = parts

    def done(self, chunk: Chunk, records: int) -> None:
        """Note that a part of a chunk is put."""
        self.records += records
        self._left[chunk.end] -= 1
        while self._under_way and not self._left[self._under_way[0].end]:
            self.position = self._under_way.popleft().end
            del self._left[self.position]


@final
class ImportState:
    """The file that keeps the position of an import, and what is imported."""

    def __init__(self, path: Path | None, identity: dict[str, object]) -> None:
        self._path, self._identity = path, json.loads(json.dumps(identity))
        self._saved_at = monotonic()

    def read(self) -> ImportPosition:
        """Return the saved position; the beginning if there is none.  Raises ConfigError: it is of another import."""
        if self._path is None or not self._path.exists():
            return ImportPosition()
        try:
            found = json.loads(small_file.read_text(self._path, STATE_FILE))
            file, records = found.pop("position")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(f"{self._path}: not the state of an import; give another file with --state") from None
        if found != self._identity:
            other = next(name for name in {**self._identity, **found} if found.get(name) != self._identity.get(name))
            raise ConfigError(
                f"{self._path}: the state of another import, since {other} differs; to start over, remove the file"
            )
        return ImportPosition(int(file), int(records))

    def save(self, position: ImportPosition, *, now: bool = False) -> None:
        """Save the position, unless it was saved lately.  Raises OSError."""
        if self._path is not None and (now or monotonic() - self._saved_at > SAVE_S):
            small_file.write_text(self._path, json.dumps({**self._identity, "position": position}), mode=0o644)
            self._saved_at = monotonic()

    def remove(self) -> None:
        """Remove the file: the import is complete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


@final
class Importer:
    """Puts chunks of records, several at once, each key by one writer, so that the last record of a key stays.

    After an error of a writer no further part of a chunk is put, and those under way end.
    """

    def __init__(
        self,
        files: ImportedFiles,
        position: ImportPosition,
        level: Level,
        on_done: Callable[[], object],
        *,
        ttl_ms: int | None,
    ) -> None:
        self.progress = ImportProgress(position)
        self._files, self._level, self._ttl_ms, self._on_done = files, level, ttl_ms, on_done
        self._chunks = files.chunks(position)
        self._errors: list[GossipKVError] = []  # Errors of writers.

    async def run(self, tables: Sequence[Table]) -> None:
        """Put all records; each of `tables` is of a client of its own.  Raises GossipKVError."""
        async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as writers:
            senders = []
            for number in range(WRITERS):
                sender, receiver = trio.open_memory_channel[tuple[Chunk, Records]](1)
                nursery.start_soon(self._write, tables[number % len(tables)], receiver)
                senders.append(await writers.enter_async_context(sender))
            bad_row = await self._read(senders)
        errors = self._errors or ([] if bad_row is None else [bad_row])
        if errors:
            raise errors[0]

    async def _read(self, senders: Sequence[trio.MemorySendChannel[tuple[Chunk, Records]]]) -> GossipKVError | None:
        """Give chunks to the writers; return the error that ends the reading, before which all chunks are put."""
        try:
            for chunk in self._chunks:
                parts: list[Records] = [[] for _ in senders]
                for record in chunk.records:
                    parts[hash(record[0]) % WRITERS].append(record)
                self.progress.begin(chunk, len(parts))
                for sender, part in zip(senders, parts, strict=True):
                    await sender.send((chunk, part))
                if self._errors:
                    break
        except GossipKVError as error:
            return error
        return None

    async def _write(self, table: Table, receiver: trio.MemoryReceiveChannel[tuple[Chunk, Records]]) -> None:
        async for chunk, records in receiver:
            if not self._errors:
                try:
                    await self._put(table, records)
                except GossipKVError as error:
                    if "database" not in error.details:  # It is not about the table as a whole.
                        error.message = f"{self._where(chunk)}: {error.message}"
                    self._errors.append(error)
                else:
                    self.progress.done(chunk, len(records))
                    self._on_done()

    async def _put(self, table: Table, records: Records) -> None:
        """Put records, again if that fails for a moment: they stay the same.  Raises GossipKVError."""
        failing_since, is_put = trio.current_time(), not records
        while not is_put:
            try:
                await table.put_many(records, level=self._level, ttl_ms=self._ttl_ms)
                is_put = True
            except FOR_NOW:
                if trio.current_time() - failing_since > PATIENCE_S:
                    raise
                await trio.sleep(PAUSE_S)

    def _where(self, chunk: Chunk) -> str:
        first, last = chunk.begin.records + 1, chunk.begin.records + len(chunk.records)
        return f"{self._files.files[chunk.begin.file].path}: one of the records {first:,} to {last:,}"


@click.command(cls=Command, name="import")
@click.argument("name", metavar="TABLE")
@click.argument("paths", metavar="FILE...", type=click.Path(exists=True, dir_okay=False), nargs=-1, required=True)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help=("Format of the files.  [default: detected from each file]")
)
@click.option(
    "--key-field",
    default="key",
    show_default=True,
    metavar="FIELD",
    help=("Field of the key in JSON lines and Parquet."),
)
@click.option("--value-field", default="value", show_default=True, metavar="FIELD", help="Field of the value.")
@click.option(
    "--expiry-field",
    metavar="FIELD",
    help="Field of the time of expiry, in milliseconds since 1970; records without it never expire.",
)
@click.option(
    "--ttl",
    type=duration_ms,
    metavar="DURATION",
    help="Lifetime of records without a time of expiry.  [default: as the table says]",
)
@click.option(
    "--state",
    "state_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="STATE",
    help="File for the progress; if the file exists, continue from there.",
)
@LEVEL
@BATCH
@JSON
def import_(
    name: str,
    paths: tuple[str, ...],
    form: str | None,
    key_field: str,
    value_field: str,
    *,
    expiry_field: str | None,
    ttl: int | None,
    state_path: Path | None,
    level: Level,
    nodes: AskedNodes,
    as_json: bool,
) -> None:
    """Put the records of each FILE into TABLE. All formats of sources are read.

    If a key occurs more than once, the last record stays. Batches without an answer are put again, so let no other
    client write these keys meanwhile. After an interruption, repeat the command: with --state it continues there,
    without it starts over. Batches go to all nodes of --node.
    """
    begin_s = monotonic()
    files = ImportedFiles(
        [*map(_file, paths)],
        form,
        FileReading(key_field, value_field, max_value_bytes=MAX_VALUE_BYTES),
        expiry_field,
    )
    ttl_ms = 0 if ttl is None and expiry_field is not None else ttl
    listed = [[file.path, file.size_bytes, file.modified_ns] for file in files.files]
    state = ImportState(
        state_path, {"table": name, "files": listed, "format": form, "key": key_field, "value": value_field}
    )
    position = state.read()
    with progress(
        description(), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[records]:,}"), TimeRemainingColumn()
    ) as bar:
        task = bar.add_task(f"{name}: records put", total=files.size_bytes, records=0)

        def on_done() -> None:
            bar.update(task, completed=files.read_bytes, records=importer.progress.records)
            state.save(importer.progress.position)

        importer = Importer(files, position, level, on_done, ttl_ms=ttl_ms)
        try:
            with nodes.connect():  # Explains a node that does not answer, and an unknown table.
                trio.run(_run, importer, name, nodes)
        except BaseException as error:
            state.save(importer.progress.position, now=True)
            again = "puts them again" if state_path is None else "continues from there"
            if importer.progress.records:
                note(f"gossipkv: {importer.progress.records:,} records were put; the same command {again}")
            if isinstance(error, SourceError):
                error.message = FIELDS.sub(r"--\1-field", error.message)
            raise
    state.remove()
    records, count = importer.progress.records, len(paths)
    answer: dict[str, Value] = {"table": name, "records": records, "files": count, "skipped": position.records}
    took = f"{monotonic() - begin_s:.1f} s"
    tell(
        answer,
        f"{name}: {records:,} records put, from {count} file{'' if count == 1 else 's'} in {took}",
        as_json=as_json,
    )


async def _run(importer: Importer, name: str, nodes: AskedNodes) -> None:
    async with contextlib.AsyncExitStack() as stack:
        tables, addresses = [], nodes_or_usual(nodes.addresses)
        for number in range(min(len(addresses), WRITERS)):
            order = [*addresses[number:], *addresses[:number]]
            client = Client(order, timeout_ms=nodes.timeout_ms, credentials=credentials())
            tables.append((await stack.enter_async_context(client)).table(name))
        await importer.run(tables)


def _file(path: str) -> SourceFile:
    files = RealFiles()
    place = files.resolve(str(Path(path).absolute()))
    entry = files.stat(place)
    return SourceFile(path, place, entry.size_bytes, entry.modified_ns, entry.tag)
