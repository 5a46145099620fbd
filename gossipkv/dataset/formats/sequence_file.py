"""Hadoop SequenceFiles, versions 5 and 6: plain, compressed record by record, or in blocks.

    header    "SEQ", version (1 byte), class of keys and of values (Texts), two flags (1 byte each: values are
              compressed; there are blocks), if compressed the codec's class (Text), in version 6 an int of metadata and
              two Texts for each, the file's sync mark (16 bytes)
    record    int of key and value bytes, int of key bytes, key, value; any number of sync marks before it
    block     a sync mark, vint of records, then four buffers, each compressed behind a vint of its size: sizes of the
              keys (vints), keys, sizes of the values, values
    sync      an int of -1 and the file's 16 bytes
    vint      first byte -112 to 127: itself; -113 to -116: 1 to 4 bytes follow; -121 to -124: their complement follows
    Text      vint of bytes, bytes; BytesWritable has an int
    snappy, lz4   int of raw bytes, then (int of compressed bytes, chunk) until these are reached; and so on

Ints are big-endian.  This module handles the header, the way through the file and the bounds; the extension
(`sequence_file.pyx`) handles each record.

Invariant: the options bound memory, whatever the file claims.  A plain file is read through windows, and records are
taken in place.  In a block, the lengths of keys and values give the sizes of their buffers before memory is allocated,
and longer output is refused at once.  A block needs its four buffers and the longest one in compressed form.

Sync marks let Hadoop begin in the middle of a file.  Here they are only verified, since a wrong one shows missing or
damaged bytes; nothing is skipped in search of the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.dataset.formats._formats import KINDS, Block, RecordDecoder, sum_of_lengths
from gossipkv.dataset.formats.codecs import CODECS, DamagedError, decompressor
from gossipkv.dataset.formats.reading import MORE_MEMORY, enough_memory, refusal
from gossipkv.storage.batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.codecs import Bytes, Decompress
    from gossipkv.dataset.formats.reading import FileReading, Readable

MAGIC = b"SEQ"
VERSIONS = (5, 6)
FIRST_VERSION_WITH_METADATA = 6
PACKAGE = "org.apache.hadoop.io."
NULL_WRITABLE = f"{PACKAGE}NullWritable"

SYNC_BYTES = 16
SYNC_ESCAPE = -1
INT_BYTES = 4
MAX_VINT_BYTES = 5
# Metadata are a few names of Hive's or of a job's; texts of the header are names of Java classes, and metadata.
MAX_METADATA = 1024
MAX_TEXT_BYTES = 64 << 10
# A file is read in windows of this size, each beginning at a multiple of it.
WINDOW_BYTES = 1 << 20
# A key or value that is not null takes at least one byte for its field and one for its length.
MIN_LENGTHS_BYTES = 2

_CUT = "the file is truncated, or a length is wrong"
_SMALLER_BLOCKS = "write smaller blocks (io.seqfile.compress.blocksize)"


def memory_bytes(options: FileReading) -> int:
    """Return the most memory that reading takes, given that malloc maps buffers of 1 MiB apart (`processes.child`).

    The memory covers a block, or a separately compressed value: compressed, in a window; decompressed; and the output
    that zstd keeps as reference, which a frame may extend to all of it.  A few windows are added for the rest.
    """
    return 5 * WINDOW_BYTES + max(options.max_block_bytes, options.max_value_bytes) * 13 // 4


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file."""

    key_class: str
    value_class: str
    in_blocks: bool
    decompress: Decompress | None
    sync: bytes

    @property
    def min_record_bytes(self) -> int:
        """Return the fewest bytes of a record in a block."""
        return MIN_LENGTHS_BYTES + (self.key_class != NULL_WRITABLE) + (self.value_class != NULL_WRITABLE)


class WindowCursor:
    """The bytes of a file in order, through windows."""

    def __init__(self, reader: Readable) -> None:
        self.reader = reader
        self.window = b""
        self.start = 0  # The start of the window in the file.
        self.at = 0  # The position in the window.

    @property
    def offset(self) -> int:
        return self.start + self.at

    @property
    def left(self) -> int:
        """Return the number of bytes up to the end of the file."""
        return self.reader.size_bytes - self.offset

    def ensure(self, size_bytes: int) -> bool:
        """Extend the window to `size_bytes` from here, dropping earlier bytes; False if the file ends before."""
        if size_bytes > self.left:
            return False
        if size_bytes > len(self.window) - self.at:
            end = self.start + len(self.window)
            wanted = self.offset + size_bytes
            until = min(self.reader.size_bytes, wanted + -wanted % WINDOW_BYTES)
            self.start, self.window, self.at = self.offset, self.window[self.at :], 0
            self.window += self.reader.read_at(end, until - end)
        return True

    def take(self, size_bytes: int, part: str) -> memoryview:
        """Return the next bytes.

        Raises:
            SourceError: the file ends before.
        """
        if not self.ensure(size_bytes):
            raise refusal(
                self.reader.name, self.offset,
                f"{part} should have {size_bytes:,} bytes, but the file ends after {self.left:,} bytes; {_CUT}",
            )  # fmt: skip
        self.at += size_bytes
        return memoryview(self.window)[self.at - size_bytes : self.at]

    def integer(self, part: str) -> int:
        """Read a signed number of four bytes."""
        return int.from_bytes(self.take(INT_BYTES, part), "big", signed=True)

    def vint(self, part: str) -> int:
        """Read a number of WritableUtils that must not be negative."""
        offset = self.offset
        first = int.from_bytes(self.take(1, part), "big", signed=True)
        if first >= -112:  # noqa: PLR2004  # `sequence_file.pyx` draws the numbers.
            number = first
        else:
            negative = first < -120  # noqa: PLR2004  # See above.
            size = -120 - first if negative else -112 - first
            if size >= MAX_VINT_BYTES:
                raise refusal(self.reader.name, offset, f"{part} is not a number of 32 bits")
            number = int.from_bytes(self.take(size, part), "big")
            number = ~number if negative else number
        if not 0 <= number < 1 << 31:
            raise refusal(self.reader.name, offset, f"{part} is {number:,}, which is out of range")
        return number

    def text(self, part: str) -> str:
        """Read a Text of the header."""
        offset = self.offset
        size = self.vint(part)
        if size > MAX_TEXT_BYTES:
            raise refusal(self.reader.name, offset, f"{part} has {size:,} bytes; the limit is {MAX_TEXT_BYTES:,} bytes")
        return bytes(self.take(size, part)).decode("utf-8", "backslashreplace")

    def boolean(self, part: str) -> bool:
        offset = self.offset
        byte = self.take(1, part)[0]
        if byte > 1:
            raise refusal(self.reader.name, offset, f"{part} is {byte}, which is neither 0 nor 1")
        return byte == 1


def batches(reader: Readable, options: FileReading) -> Iterator[RecordBatch]:
    """Yield the records of a file in order.

    Raises:
        SourceError: the file is no supported SequenceFile, or is damaged; names the place.
        SourceChanged, StorageError: the file cannot be read at all.
    """
    cursor = WindowCursor(reader)
    header = read_header(cursor)
    yield from _in_blocks(cursor, header, options) if header.in_blocks else _one_by_one(cursor, header, options)


def read_header(cursor: WindowCursor) -> Header:
    """Read the header, leaving the cursor behind it.

    Raises:
        SourceError: another kind of file.
    """
    name = cursor.reader.name
    magic = bytes(cursor.take(min(len(MAGIC), cursor.left), "the magic"))
    if not magic:
        raise refusal(name, 0, "the file is empty, so it is not a SequenceFile")
    if magic != MAGIC:
        raise refusal(name, 0, f"the file begins with {magic!r}, not with {MAGIC!r}, so it is not a SequenceFile")
    version = cursor.take(1, "the version")[0]
    if version not in VERSIONS:
        raise refusal(name, len(MAGIC), f"the SequenceFile has version {version}; only versions 5 and 6 can be read")
    classes = []
    for role in ("key", "value"):
        offset = cursor.offset
        class_name = cursor.text(f"the class of the {role}s")
        if class_name not in KINDS:
            accepted = ", ".join(kind.removeprefix(PACKAGE) for kind in KINDS)
            reason = f"the class of the {role}s is {class_name!r}; of {PACKAGE}*, only {accepted} can be read"
            raise refusal(name, offset, reason)
        classes.append(class_name)
    offset = cursor.offset
    compressed = cursor.boolean("the flag for compressed values")
    in_blocks = cursor.boolean("the flag for blocks")
    if in_blocks and not compressed:
        raise refusal(name, offset, "the records are in blocks without compression, which Hadoop does not write")
    decompress = _codec(cursor) if compressed else None
    if version >= FIRST_VERSION_WITH_METADATA:
        _pass_metadata(cursor)
    sync = bytes(cursor.take(SYNC_BYTES, "the sync mark"))
    return Header(classes[0], classes[1], in_blocks, decompress, sync)


def _codec(cursor: WindowCursor) -> Decompress:
    offset = cursor.offset
    codec = cursor.text("the codec")
    decompress = decompressor(codec)
    if decompress is None:
        accepted = ", ".join(name.rpartition(".")[2] for name in CODECS)
        raise refusal(cursor.reader.name, offset, f"the codec is {codec!r}; of Hadoop's, only {accepted} can be read")
    return decompress


def _pass_metadata(cursor: WindowCursor) -> None:
    offset = cursor.offset
    count = cursor.integer("the number of metadata entries")
    if not 0 <= count <= MAX_METADATA:
        raise refusal(
            cursor.reader.name, offset, f"the file has {count:,} metadata entries; the limit is {MAX_METADATA:,}"
        )
    for _ in range(count):
        cursor.text("a name in the metadata")
        cursor.text("a value in the metadata")


def _one_by_one(cursor: WindowCursor, header: Header, options: FileReading) -> Iterator[RecordBatch]:
    name = cursor.reader.name
    decoder = RecordDecoder(
        header.sync, header.key_class, header.value_class, options.max_value_bytes, name, header.decompress
    )
    batch = RecordBatch()
    while cursor.left:
        if cursor.at == len(cursor.window):
            cursor.ensure(1)
        cursor.at = decoder.fill(batch, cursor.window, cursor.at, cursor.start)
        if batch:  # The batch is passed on at the end of a window as well, since it holds the window.
            yield batch
        batch.clear()
        wanted = decoder.wanted
        if wanted and cursor.left and not cursor.ensure(wanted):
            raise refusal(
                name, cursor.offset,
                f"the record has at least {wanted:,} bytes, but the file ends after {cursor.left:,} bytes; {_CUT}",
            )  # fmt: skip


def _in_blocks(cursor: WindowCursor, header: Header, options: FileReading) -> Iterator[RecordBatch]:
    batch = RecordBatch()
    while cursor.left:
        block = _block(cursor, header, options)
        while block.fill(batch):
            yield batch
            batch.clear()
        del block  # Release the block before the next one is decompressed.


def _block(cursor: WindowCursor, header: Header, options: FileReading) -> Block:
    name, offset = cursor.reader.name, cursor.offset
    if cursor.integer("the sync mark of a block") != SYNC_ESCAPE:
        raise refusal(name, offset, "the sync mark at the beginning of the block is missing")
    if cursor.take(SYNC_BYTES, "the sync mark of a block") != header.sync:
        raise refusal(name, offset, "the sync mark differs from the file's; bytes before it are missing or damaged")
    count = cursor.vint("the number of records in a block")
    limit = options.max_block_bytes
    _check_block(name, offset, count * header.min_record_bytes, limit, "at least ")
    used = 0
    buffers: list[Bytes] = []
    for role in ("keys", "values"):
        max_bytes = min(count * MAX_VINT_BYTES, limit - used)
        lengths = _buffer(cursor, header, offset, f"the lengths of the {role}", max_bytes)
        total = sum_of_lengths(lengths, count, name, offset)
        used += len(lengths) + total
        _check_block(name, offset, used, limit, "" if role == "values" else "more than ")
        fields = _buffer(cursor, header, offset, f"the {role}", total)
        if len(fields) != total:
            raise refusal(
                name, offset,
                f"the {role} of the block have {len(fields):,} bytes, but their lengths add up to {total:,} bytes",
            )  # fmt: skip
        buffers += [lengths, fields]
    return Block(buffers, count, header.key_class, header.value_class, options.max_value_bytes, name, offset)


def _check_block(name: str, offset: int, size_bytes: int, limit: int, exactness: str) -> None:
    if size_bytes > limit:
        raise refusal(
            name, offset,
            f"the block has {exactness}{size_bytes:,} bytes; the limit is {limit:,} bytes; {_SMALLER_BLOCKS}; "
            + (MORE_MEMORY if exactness else enough_memory(size_bytes)),
        )  # fmt: skip


def _buffer(cursor: WindowCursor, header: Header, block_offset: int, part: str, limit: int) -> Bytes:
    """Decompress one buffer of a block to at most `limit` bytes."""
    assert header.decompress is not None
    offset = cursor.offset
    size = cursor.vint(f"the compressed size of {part}")
    # Even incompressible data grow by less than that.
    if size > limit + limit // 8 + 4096:
        raise refusal(
            cursor.reader.name, offset,
            f"{part} of the block have {size:,} compressed bytes, which is too much for {limit:,} bytes of data",
        )  # fmt: skip
    try:
        return header.decompress(cursor.take(size, f"{part} of a block"), limit)
    except DamagedError as error:
        raise refusal(
            cursor.reader.name, block_offset, f"{part} of the block cannot be decompressed: {error}"
        ) from error
