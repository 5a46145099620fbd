"""Traffic that TLS clients never send: mutated handshakes and records, and well-sealed records of any content.

Each client has its own generator, seeded by its number, and replays as in `frames.py`.
"""

from __future__ import annotations

import contextlib
import ssl
from collections import Counter
from typing import TYPE_CHECKING

from tests.unit.serving.sealed_records import (
    ALERT,
    CHANGE_CIPHER,
    DATA,
    HANDSHAKE,
    HEARTBEAT,
    KEY_UPDATE,
    RECORD_BYTES,
    Sealing,
    raw,
)
from tests.unit.serving.secured import Client, Secured
from tests.unit.serving.test_tls_slow import GET, GOT, hello

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

KINDS = [CHANGE_CIPHER, ALERT, HANDSHAKE, DATA, HEARTBEAT, 0, 99, 255]
SIZES = [0, 1, 15, 16, 17, 300, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, RECORD_BYTES + 257, 65_535]
PLAIN = [GET, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"*1\r\n$4\r\nPING\r\n", b"\x80\x2e\1\3\1"]
INNER = [
    b"", b"\1\0", b"\1\x5a", b"\2\x28", b"\1\xff\xff", *(KEY_UPDATE + bytes([asks]) for asks in range(3)), b"\1\0\0\0",
    b"\x14\0\0\x30" + bytes(48), b"\x18\xff\xff\xff", b"\x0b\0\0\4\0\0\0\0", GET, GET[:5],
]  # fmt: skip
PARTS = 6  # The most parts that a client sends behind its handshake.
WRONG = "wrong records"
TURNS = 200  # The limit of turns until a handshake is done, among many at once.


class Fuzzed:
    """A loop that gets such traffic, beside a bystander that is always answered."""

    def __init__(self, directory: Path) -> None:
        self.served = Secured(directory)
        self.seen: Counter[str] = Counter()
        self.here = self.served.meet()
        self.keys = directory / "keys"
        self.contexts = [
            self.served.authority.trusting(version=one) for one in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
        ]
        self.contexts[1].keylog_filename = str(self.keys)
        self.first = hello(self.served)
        self.tickets = [self.ticket(context) for context in self.contexts]

    def ticket(self, context: ssl.SSLContext) -> ssl.SSLSession:
        client = self.served.meet(context)
        client.send(GET)
        self.served.take(client, len(GOT))
        client.socket.close()
        self.served.until(lambda: self.served.counters("connections") == 1)
        return client.tls.session

    def is_well(self) -> bool:
        """True if the bystander is answered and has the only connection."""
        self.here.send(GET)
        return self.served.take(self.here, len(GOT)) == GOT and self.served.counters("connections") == 1

    def meet(self, draws: list[random.Random]) -> None:
        """Run clients at once until all have gone."""
        talks = [self.talk(draw) for draw in draws]
        while talks:
            talks = [talk for talk in talks if next(talk, None)]
            self.served.step()
        self.served.until(lambda: self.served.counters("connections") == 1)

    def talk(self, draw: random.Random) -> Iterator[bool]:
        """Run one client, which sends something between two steps."""
        way = draw.choice(["hello", "hello", "handshake", "records", "records", "sealed", "sealed", "sealed"])
        self.seen[way] += 1
        connection = self.served.connect()
        with contextlib.suppress(ssl.SSLError, OSError):
            if way == "hello":
                connection.send(self.wrong(draw, self.first))
            else:
                which = way == "sealed" or draw.randrange(2)
                ticket = draw.choice([None, *[self.tickets[which]] * 3])
                yield from self.go_on(Client(connection, self.contexts[which], ticket=ticket), way, draw)
            yield True
        connection.close()
        self.served.clients.remove(connection)

    def go_on(self, client: Client, way: str, draw: random.Random) -> Iterator[bool]:
        """Do the handshake, changed or not, and send a few records behind it."""
        wrong = draw.randrange(1, 3) if way == "handshake" else 0
        for _ in range(TURNS):
            client.hear()
            with contextlib.suppress(ssl.SSLWantReadError):
                client.tls.do_handshake()
                client.is_shaken = True
            if said := client.out.read():
                wrong -= 1
                client.socket.send(self.wrong(draw, said) if wrong == 0 else said)
            if client.is_shaken:
                break
            yield True
        if way == "sealed":
            client.socket.send(self.seal(client, draw))
            return
        for _ in range(PARTS):
            client.tls.write(GET * draw.choice([1, 1, 40, 700]))
            said = client.out.read()
            client.socket.send(self.wrong(draw, said) if draw.random() < 0.4 else said)
            yield True

    def seal(self, client: Client, draw: random.Random) -> bytes:
        """Return correctly sealed records of any content, in any order."""
        sealing = Sealing(client, self.keys)
        self.keys.write_bytes(b"")  # The file is read whole each time.
        said = []
        for _ in range(draw.randrange(1, PARTS)):
            kind = draw.choice([DATA, DATA, DATA, *KINDS])
            inner = draw.choice(INNER) if kind != DATA else (GET * 1200)[: draw.choice([*SIZES[:-2], 24, 24, 24])]
            said.append(sealing.seal(kind, inner, draw.choice([0, 0, 0, 1, 700])))
            if kind == HANDSHAKE and inner[:4] == KEY_UPDATE:
                sealing.change_keys()
        if draw.random() < 0.2:
            strange = raw(draw.choice(KINDS), bytes(draw.choice(SIZES)))
            said.insert(draw.randrange(len(said)), draw.choice([*PLAIN, strange]))
        if draw.random() < 0.1:
            draw.shuffle(said)
        self.seen[WRONG] += len(said)
        return b"".join(said)

    def wrong(self, draw: random.Random, said: bytes) -> bytes:
        self.seen[WRONG] += 1
        return mutated(draw, said)


def mutated(draw: random.Random, said: bytes) -> bytes:
    """Make one to three changes to bytes, heads, number or order of records."""
    records = split(said)
    for _ in range(draw.choice([1, 1, 3])):
        at = draw.randrange(len(records) + 1)
        match draw.randrange(8):
            case 0:
                records.insert(at, draw.choice([*records, b""]))
            case 1:
                records.insert(at, raw(draw.choice(KINDS), draw.choice(INNER)))
            case 2:
                draw.shuffle(records)
            case _ if records:
                records[at % len(records)] = changed(draw, bytearray(records[at % len(records)]))
    return b"".join(records)


def changed(draw: random.Random, record: bytearray) -> bytes:
    """Change a record's content or its head."""
    at = draw.randrange(len(record) + 1)
    match draw.randrange(6):
        case 0 if record:
            record[at % len(record)] ^= 1 << draw.randrange(8)
        case 1:
            record[:1] = bytes([draw.choice(KINDS)])
        case 2:
            record[3:5] = draw.choice([*SIZES, len(record), len(record) + 1]).to_bytes(2, "big")
        case 3:
            record[:] = raw(DATA, bytes(record[5:]) + bytes(draw.choice(SIZES[:-1])))
        case 4:
            del record[at:]
        case _:
            record[at:at] = draw.choice(PLAIN)
    return bytes(record)


def split(said: bytes) -> list[bytes]:
    records = []
    while said:
        size = 5 + int.from_bytes(said[3:5], "big")
        records.append(said[:size])
        said = said[size:]
    return records
