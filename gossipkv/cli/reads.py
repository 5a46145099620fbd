"""`get`, `mget` and `scan` of datasets and tables: values on standard output, as they are.

`get` writes the value and nothing else (on a terminal a line feed, if it does not end in one).  `mget` and `scan`
write lines, `key TAB value`, the form in which sources are read; `--hex` and `--json` are for keys and values that
hold a TAB or a line feed.  Both together are JSON whose keys and values are hexadecimal digits.
"""

from __future__ import annotations

import contextlib
import sys
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

import click

from gossipkv.cli import NOT_FOUND
from gossipkv.cli.help import Command
from gossipkv.cli.options import HEX, JSON, NODES, OUT, VERSION, AskedNodes, key_bytes
from gossipkv.cli.output import CommandOutput, json_line, note
from gossipkv.client import parts
from gossipkv.client.pages import ScanPages
from gossipkv.client.reads import given, name_bytes, span_options, value_of
from gossipkv.errors import BadRequest, TooLarge
from gossipkv.wire.key_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gossipkv.client.reads import Record, Stamp
    from gossipkv.wire.rpc import Value

MAX_KEY_BYTES: Final = 65_535  # The limit of datasets; a table's keys are a few bytes shorter, and a node says so.
KEYS_AT_ONCE: Final = 500  # Keys of one request; an answer with values of 30 KiB still fits, and memory stays small.


@click.command(cls=Command)
@click.argument("database", metavar="DB")
@click.argument("key", metavar="KEY", type=key_bytes)
@NODES
@VERSION
@HEX
@JSON
@OUT
def get(
    database: str, key: bytes, nodes: AskedNodes, version: str | None, *, as_json: bool, output: CommandOutput
) -> int:
    """Write the value of KEY in DB, byte for byte.

    If KEY is `-`, the key is read from standard input, without one final line feed. The exit status is 1 if the key
    does not exist.
    """
    key = key_or_input(key)
    with _asked(database, version), nodes.connect() as client, output:
        options: list[Value] = [] if version is None else [{"version": version}]
        value, stamp = value_of(client.call("get", database, key, *options))
        if as_json:
            kind = "token" if isinstance(stamp, bytes) else "version"
            output.write(json_line({**output.record(key, value), kind: stamp}))
        elif value is not None:
            output.write(output.form(value))
            if output.for_people and not value.endswith(b"\n"):
                output.write(b"\n")
    if value is None:
        _note_missing(key, database, stamp)
        return NOT_FOUND
    return 0


@click.command(cls=Command)
@click.argument("database", metavar="DB")
@click.argument("keys", metavar="KEY...", type=key_bytes, nargs=-1, required=True)
@NODES
@VERSION
@HEX
@JSON
@OUT
def mget(
    database: str,
    keys: tuple[bytes, ...],
    nodes: AskedNodes,
    version: str | None,
    *,
    as_json: bool,
    output: CommandOutput,
) -> int:
    """Write a line `key TAB value` for each existing KEY in DB, in the requested order.

    All values of a dataset come from one version. If KEY is `-`, keys are read from the lines of standard input. With
    --json, each key is a line {"key", "value"}, with null for an absent key. The exit status is 1 if keys are absent;
    they are listed on standard error.
    """
    missing = 0
    with _asked(database, version), nodes.connect() as client, output:
        for part in _parts(_lines() if keys == (b"-",) else keys):
            reading = parts.reading(name_bytes(database), part, given({"version": version}))
            values, stamp = client.ask_steps(reading, None)
            assert isinstance(values, list), "no columns were requested"
            version = stamp if isinstance(stamp, str) else None
            for key, value in zip(part, values, strict=True):
                if as_json:
                    output.write(json_line(output.record(key, value)))
                elif value is not None:
                    output.write(b"%b\t%b\n" % (output.form(key), output.form(value)))
                if value is None:
                    missing += 1
                    _note_missing(key, database, stamp)
    return NOT_FOUND if missing else 0


@click.command(cls=Command)
@click.argument("database", metavar="DB")
@click.option("--start", type=key_bytes, metavar="KEY", help="First key (inclusive).")
@click.option("--end", type=key_bytes, metavar="KEY", help="End key (exclusive).")
@click.option("--prefix", type=key_bytes, metavar="PREFIX", help="Only keys with this prefix.")
@click.option("--reverse", is_flag=True, help="Scan from the last key to the first.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Maximum number of records.")
@NODES
@VERSION
@HEX
@JSON
@OUT
def scan(
    database: str,
    *,
    start: bytes | None,
    end: bytes | None,
    prefix: bytes | None,
    limit: int | None,
    nodes: AskedNodes,
    version: str | None,
    reverse: bool,
    as_json: bool,
    output: CommandOutput,
) -> None:
    """Write the records of DB in key order, each as a line `key TAB value`.

    All records of a dataset come from one version. With --json, each record is a line {"key", "value"}.
    """
    with _asked(database, version), nodes.connect() as client, output:
        span = span_options(start, end, prefix, reverse=reverse)
        pages = ScanPages(database, span | given({"version": version}), limit=limit)
        for key, value in cast("Iterator[Record]", client.scanned(pages, None)):
            if as_json:
                output.write(json_line(output.record(key, value)))
            else:
                output.write(b"%b\t%b\n" % (output.form(key), output.form(value)))


def input_bytes(limit: int, what: str) -> bytes:
    """Return all of standard input, reading at most one byte beyond the limit.

    Raises:
        TooLarge: the input is over the limit.
    """
    return _within(sys.stdin.buffer.read(limit + 1), limit, what)


def _within(data: bytes, limit: int, what: str) -> bytes:
    if len(data) > limit:
        raise TooLarge(f"standard input: more than the {limit:,} bytes that {what} may have", {"limit": limit})
    return data


def key_or_input(key: bytes, limit: int = MAX_KEY_BYTES) -> bytes:
    """Return the given key; `-` stands for standard input, without one line feed at its end."""
    if key != b"-":
        return key
    return _within(sys.stdin.buffer.read(limit + 2).removesuffix(b"\n"), limit, "a key")


@contextlib.contextmanager
def _asked(database: str, version: str | None) -> Iterator[None]:
    """Explain a refusal where a version of a table was asked for."""
    try:
        yield
    except BadRequest as error:
        if version is None or error.details.get("option") != "version":
            raise
        raise click.UsageError(f"{database} is a table, which has no versions: --version is for datasets") from error


def _note_missing(key: bytes, database: str, stamp: Stamp) -> None:
    note(f"not found: {shown(key)} in {database}{'' if isinstance(stamp, bytes) else f', version {stamp}'}")


def _lines() -> Iterator[bytes]:
    while line := sys.stdin.buffer.readline(MAX_KEY_BYTES + 2):
        yield _within(line.removesuffix(b"\n"), MAX_KEY_BYTES, "a key")


def _parts(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    iterator = iter(keys)
    while part := list(islice(iterator, KEYS_AT_ONCE)):
        yield part
