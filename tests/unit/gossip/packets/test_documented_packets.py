"""The tables and bytes of docs/development/gossip-packets.md are those of oracle, code and packets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gossipkv.address import Address
from gossipkv.environment.seam import MAX_DATAGRAM_BYTES
from gossipkv.gossip.packets import envelope, messages, prefix, sealing
from gossipkv.gossip.packets.compression import MAX_UNPACKED_BYTES
from gossipkv.gossip.packets.messages import Who
from gossipkv.gossip.profile import LAN
from gossipkv.protocol import PROTOCOL_MAX, PROTOCOL_MIN
from tests.oracle import packets as oracle
from tests.unit.gossip.packets import test_golden_packets as golden

PAGE = (Path(__file__).parents[4] / "docs" / "development" / "gossip-packets.md").read_text(encoding="utf-8")
ROW = re.compile(r"^([\d ]{8})([\w ]{6})(.+)$", re.MULTILINE)
HEAD = re.compile(r"^\| ([A-Z_]+) \| (\d+) \| ([\d or to]+) \| (.*?) \|", re.MULTILINE)
FIELD = re.compile(r"`(\w+)` ([^,.`]+)")
DRAWN = re.compile(r"^(\d+) +([0-9a-f]+)  ", re.MULTILINE)

Row = tuple[str, str, str]


def tables(heading: str) -> list[list[Row]]:
    """Return the drawings of three columns (offset, size, field) under a heading."""
    section = PAGE.split(f"\n{heading}\n")[1].split("\n#")[0]
    blocks = section.split("offset  size  field\n")[1:]
    return [
        [(at.strip(), size.strip(), name) for at, size, name in ROW.findall(block.split("```")[0])] for block in blocks
    ]


def fields(table: list[Row]) -> tuple[tuple[str, str], ...]:
    """Return sizes and names; check that an offset stands where it is the same for all packets."""
    at: int | None = int(table[0][0]) if table[0][0] else None
    for offset, size, _ in table:
        assert offset == ("" if at is None else str(at)), table
        at = at + int(size) if at is not None and size.isdigit() else None
    return tuple((size, name) for _, size, name in table)


def named(sentence: str) -> tuple[tuple[str, str], ...]:
    """Return sizes and names of the fields that a sentence lists."""
    return tuple(FIELD.findall(" ".join(sentence.split())))


def test_the_table_of_heads() -> None:
    (begin,) = re.findall(r"^A head begins with (.+)\.", PAGE, re.MULTILINE)
    assert named(begin.replace(" and", ",")) == oracle.SENDER
    told = {name: (int(kind), named(fields)) for name, kind, _, fields in HEAD.findall(PAGE)}
    assert told == oracle.HEADS


@pytest.mark.parametrize("name", oracle.PARTS)
def test_the_fields_of_a_part(name: str) -> None:
    """The page lists the fields and the repeated fields."""
    kind, expected, repeated = oracle.PARTS[name]
    section = PAGE.split(f"\n### {name}, {kind}\n")[1].split("\n#")[0]
    told = re.findall(r"^(Fields|Each \w+): (`[^.]+)\.$", section, re.MULTILINE)
    assert [named(sentence) for _, sentence in told] == [one for one in (expected, repeated) if one]


def test_every_kind_has_its_number() -> None:
    """The code's constants match the page, and there are no further ones."""
    for name, (kind, *_) in (oracle.HEADS | oracle.PARTS).items():
        assert getattr(messages, name) == kind
    assert set(messages._READ) == {kind for kind, _, _ in oracle.PARTS.values()}
    rows = re.findall(r"^    ([A-Z_]+) {2,}\S", messages.__doc__ or "", re.MULTILINE)
    assert rows == [*oracle.HEADS, *oracle.PARTS]


def test_every_flag_is_explained() -> None:
    """The page explains each bit that a docstring mentions, under the code's name."""
    sync, delta = (
        re.search(rf"^    {name} .*(?:\n     .*)*", messages.__doc__ or "", re.MULTILINE) for name in ("SYNC", "DELTA")
    )
    told = {
        name: re.findall(r"\b(\d+) \(([A-Z]+)\)", PAGE.split(f"\n### {name}")[1].split("\n#")[0])
        for name in ("SYNC", "DELTA")
    }
    assert [bit for bit, _ in told["SYNC"]] == re.findall(r"(\d+):", sync[0])
    assert [bit for bit, _ in told["DELTA"]] == re.findall(r"\((\d+): a reset", delta[0])
    for bit, name in told["SYNC"] + told["DELTA"]:
        assert getattr(messages, name) == int(bit)


def test_the_widths_of_heads() -> None:
    """The column of bytes states the shortest and longest encoding."""
    id_, word, uuid = bytes(8), 2**32 - 1, bytes(16)
    most = Who(word, uuid, 2**63 - 1, 2**63 - 1)
    written = {
        "PING": [messages.ping(id_, word, id_, id_)],
        "ACK": [messages.ack(id_, word, id_)],
        "NACK": [messages.nack(id_, word)],
        "PING_REQUEST": [messages.ping_request(id_, word, id_, Address(host, 1)) for host in ("10.0.0.1", "::1")],
        "GOSSIP": [messages.gossip(id_)],
        "SYNC": [messages.sync(id_, id_, 0)],
        "WHO": [messages.who(messages.WHO, id_, who) for who in (Who(word, uuid, 0, 0), most)],
        "REFUSAL": [messages.refusal(id_, name) for name in ("", 300 * "n")],
        "ME": [messages.who(messages.ME, id_, who) for who in (Who(word, uuid, 0, 0), most)],
    }
    told = {name: size for name, _, size, _ in HEAD.findall(PAGE)}
    assert set(told) == set(written) == set(oracle.HEADS)
    for name, examples in written.items():
        assert [int(size) for size in re.findall(r"\d+", told[name])] == [len(one) for one in examples]


def test_the_tables_of_the_envelope() -> None:
    """Every offset follows from the sizes, and the sums match the code."""
    both, plain, sealed = (fields(table) for table in tables("## Envelope"))
    assert prefix.PREFIX_BYTES == 15 == sum(int(size) for size, _ in both[:-1])
    assert 15 + int(plain[0][0]) == envelope.HEADER_BYTES
    assert 15 + sum(int(size) for size, _ in sealed[:3]) == sealing.MESSAGE_AT
    assert sealing.Sealing.overhead == sealing.MESSAGE_AT + int(sealed[-1][0])


def test_the_same_widths_stand_beside_the_code() -> None:
    """The drawings in the docstrings have the page's offsets and sizes."""
    row = re.compile(r"^    ([\dn+]+) +(\d+|n) +\S", re.MULTILINE)
    both, plain, sealed = tables("## Envelope")
    for text, rows in ((prefix.__doc__, both[:-1]), (envelope.__doc__, plain), (sealing.__doc__, sealed)):
        told = [
            (at, size)
            for at, size in row.findall(text)
            if at.isdigit() and size.isdigit() and (at, size) != ("0", "15")
        ]
        assert told == [(at, size) for at, size, _ in rows if at and size]


def test_the_heads_stand_beside_the_code() -> None:
    """The docstring of messages.py names the fields of every kind with the page's sizes and order."""
    for name, (_, table, *more) in (oracle.HEADS | oracle.PARTS).items():
        repeated = more[0] if more and name != "WANT" else ()
        line = re.search(rf"^    {name} +((?:.|\n     )*)$", messages.__doc__ or "", re.MULTILINE)
        assert line is not None, name
        if name == "ME":
            assert line[1] == "as WHO: I am"
            continue
        sizes = [size for size, _ in (*table, *repeated) if size.isdigit()]
        written = re.sub(r"\([^)]*\)", "", line[1])
        assert re.findall(r"\b(\d+)\b", written) == sizes, name


def test_every_reason_is_explained() -> None:
    """The page lists the reasons in the order of the checks."""
    section = PAGE.split("first reason that")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^- `(\w+)`: ", section, re.MULTILINE)) == prefix.REASONS


def test_the_stated_limits() -> None:
    """The numbers in the page's sentences match the constants."""
    prose = " ".join(PAGE.split())
    assert f"A path has up to {messages.MAX_PATH_BYTES:,} bytes" in prose
    assert f"A value has up to {messages.MAX_VALUE_BYTES:,} bytes" in prose
    assert f"A name has 1 to {messages.MAX_NAME_BYTES} bytes" in prose
    assert f"which of the {sealing.WINDOW:,} before it came" in prose
    assert f"at most {MAX_UNPACKED_BYTES >> 20} MiB" in prose
    assert f"- datagram: {MAX_DATAGRAM_BYTES - 1:,} bytes" in prose
    assert f"Nodes send {LAN.packet_bytes:,} at most" in prose
    assert f"remembers {sealing.MAX_SESSIONS:,} sessions" in prose
    assert f"Protocol versions {PROTOCOL_MIN} to {PROTOCOL_MAX}." in prose


def test_the_drawn_packets() -> None:
    """The joined rows of each drawing equal the vectors, and every offset is right."""
    drawings: list[bytes] = []
    for offset, octets in DRAWN.findall(PAGE.partition("\n## Two packets\n")[2]):
        if offset == "0":
            drawings.append(b"")
        assert int(offset) == len(drawings[-1])
        drawings[-1] += bytes.fromhex(octets)
    assert [one.hex() for one in drawings] == [golden.GOLDEN["plain_packet"], golden.GOLDEN["sealed_packet"]]


def test_what_a_lie_costs_is_tested():
    """Each lie names existing tests."""
    gossip = Path("tests", "unit", "gossip"), Path("tests", "nightly", "unit", "gossip")
    places = [Path(__file__).parents[4] / top / folder for top in gossip for folder in ("packets", "membership")]
    text = "".join(place.read_text() for folder in places for place in folder.glob("test_*.py"))
    defined = set(re.findall(r"^def (test_\w+)", text, re.MULTILINE))
    rows = PAGE.partition("Each line has a lie")[2].partition("\n\nA SYNC")[0].split("\n- ")[1:]
    named = [set(re.findall(r"`(test_\w+)`", row)) for row in rows]
    assert all(named)
    assert len(rows) > 10
    assert set().union(*named) <= defined
