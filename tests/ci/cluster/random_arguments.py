"""Requests with random arguments, of every method of the wire and every command of RESP, for a real node.

The first requests have no arguments. Arguments that got an answer of a new kind are kept and mutated. Names and ids
from answers become arguments. So the errors of a node teach how to get past them.
"""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING

import msgpack

from gossipkv.access.rights import COMMANDS, METHODS
from gossipkv.address import parse_address

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping

PEERS = 24
PATIENCE_S = 2.0  # After this time another connection is better: many methods may wait for a requested time.
MAX_WORDS = 3_000
SAID_S = 90.0
MARK = b"the end of an answer"
MARKED = b"$%d\r\n%s\r\n" % (len(MARK), MARK)

NUMBERS = [0, 1, 2, 3, 10, 255, *(1 << bits for bits in (16, 31, 32, 40, 63)), (1 << 31) - 1, (1 << 53) + 1]
NUMBERS += [(1 << 63) - 1, (1 << 64) - 1, *(-number for number in (1, 2, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63))]
ATOMS = [None, True, False, 1.5, float("nan"), float("inf"), -0.0, *NUMBERS]
TEXTS = [b"", b"\xff\xfe", b"a\0b", b"x" * 255, b"x" * 256, b"y" * 65_522, b"y" * 70_000, b"9" * 20, b"9" * 40]
TEXTS += [bytes(8), bytes(16), *b"geo shop days key1 1 n1 * geo:* geo:key1 one majority all 127.0.0.1:1 -1 1.5".split()]
TEXTS += b"18446744073709551616 count match type auth setname setinfo getname docs info id lib-name 3".split()


class Arguments:
    """Generate requests from the arguments that gave new kinds of answers."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.words: list[object] = list(TEXTS)
        self.options = ["limit", "version", "timeout_ms", "wait_ms", "config", "level", "token"]
        self.kept: dict[tuple[str, str], list[list[object]]] = {("wire", name.decode()): [[]] for name in METHODS}
        self.kept |= {("resp", name.decode()): [[]] for name in COMMANDS}
        self.kept["wire", "resp"] += [[1, 3, 0, b"", name, b"$1\r\na\r\n", b""] for name in COMMANDS]
        self.kept["resp", "scan"].append([b"0", b"count", b"10"])
        self.kinds: set[tuple[object, ...]] = set()
        self.sent: Counter[tuple[str, str]] = Counter()
        self.defects: list[str] = []

    def next(self, form: str) -> tuple[tuple[str, str], list[object]]:
        name = self.draw.choice([name for name in self.kept if name[0] == form])
        params: list[object] = list(self.draw.choice(self.kept[name]))
        for _ in range(self.draw.choice([0, 1, 1, 1, 2, 3])):
            params = self._changed(params)
        self.sent[name] += 1
        return name, [self._as_word(one) for one in params] if name[0] == "resp" else params

    def learn(self, name: tuple[str, str], params: list[object], answer: object, said: str) -> None:
        """Keep arguments that had an answer of a new kind, and the values in the answer."""
        if "INTERNAL" in said:
            self.defects.append(f"{name[1]} {params!r:.300}: {said}")
        kind = name, re.sub(r"\d+|'[^']*'|[0-9a-f]{16,}", "#", said)[:80]
        if kind not in self.kinds:
            self.kinds.add(kind)
            self.kept[name].append(params)
            self.options += re.findall(r"\b[a-z]+_?[a-z]+\b", said)[:20]
            self._keep(answer)

    def _keep(self, value: object) -> None:
        if isinstance(value, dict):
            value = [*value, *value.values()]
        if isinstance(value, list):
            for one in value[:50]:
                self._keep(one)
        elif len(self.words) < MAX_WORDS and (
            isinstance(value, int) or (isinstance(value, bytes | str) and len(value) < 300)
        ):
            self.words.append(value)

    def _changed(self, params: list[object]) -> list[object]:
        params = list(params)
        at = self.draw.randrange(len(params) + 1)
        if at == len(params) or self.draw.random() < 0.2:
            params.insert(at, self._value())
        elif self.draw.random() < 0.15:
            del params[at]
        elif isinstance(params[at], list) and self.draw.random() < 0.8:
            params[at] = self._changed(params[at])
        elif isinstance(params[at], dict) and self.draw.random() < 0.8:
            params[at] = params[at] | self._map()
        elif isinstance(params[at], bytes) and params[at].isdigit() and self.draw.random() < 0.5:
            params[at] = b"%d" % self.draw.choice([*NUMBERS, 1 << 64, 10**20 - 1, 10**40])
        else:
            params[at] = self._value()
        return params

    def _value(self, depth: int = 0) -> object:
        match self.draw.randrange(12 if depth < 3 else 9):
            case 0 | 1 | 2:
                return self.draw.choice(ATOMS)
            case 9 | 10:
                return [self._value(depth + 1) for _ in range(self.draw.choice([0, 1, 2, 3, 8, 60]))]
            case 11:
                return self._map()
        return self.draw.choice(self.words if self.draw.random() < 0.5 else TEXTS)

    def _map(self) -> dict[object, object]:
        return {self.draw.choice(self.options): self._value(2) for _ in range(self.draw.randrange(4))}

    def _as_word(self, value: object) -> bytes:
        return value if isinstance(value, bytes) else str(value)[:70_000].encode("utf-8", "replace")


def _as_wire(name: str, params: list[object]) -> bytes:
    return msgpack.packb([0, 1, name, params])


def _as_resp(name: str, params: list[object]) -> bytes:
    words = [name.encode(), *params]
    command = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    return command + b"*2\r\n$4\r\nECHO\r\n" + MARKED


class Peer:
    def __init__(self, form: str, address: str, arguments: Arguments) -> None:
        self.form, self.arguments = form, arguments
        self.socket = socket.create_connection(parse_address(address), SAID_S)
        self.ask()

    def ask(self) -> None:
        self.name, self.params = name, params = self.arguments.next(self.form)
        self.said, self.due = b"", time.monotonic() + PATIENCE_S
        with contextlib.suppress(ConnectionError):  # The read reports the outcome.
            self.socket.sendall((_as_wire if self.form == "wire" else _as_resp)(name[1], params))

    def hear(self) -> bool:
        """Read the available bytes; return False when no more will come."""
        try:
            part = self.socket.recv(1 << 20)
        except ConnectionError:
            part = b""
        self.said += part
        if self.form == "resp":
            is_whole, answer = self.said.endswith(MARKED), []
            line = self.said.partition(b"\r\n")[0].decode(errors="replace")
        else:
            is_whole, answer, line = _read(self.said)
        if is_whole:
            self.arguments.learn(self.name, self.params, answer, line)
            self.ask()
        return bool(part)


def _read(said: bytes) -> tuple[bool, object, str]:
    unpacker = msgpack.Unpacker(raw=True, max_buffer_size=1 << 28, strict_map_key=False)
    unpacker.feed(said)
    for message in unpacker:
        _, _, error, result = message
        line = "" if error is None else b" ".join(error[:2]).decode(errors="replace")
        return True, result, line or f"answers {type(result).__name__}"
    return False, None, ""


def ask_for(seconds: float, addresses: Mapping[str, str], arguments: Arguments, is_alive: Callable[[], bool]) -> None:
    """Send requests over many connections at once for `seconds`, while the node lives."""
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        stack.callback(lambda: [key.fileobj.close() for key in [*selector.get_map().values()]])
        while time.monotonic() < end and is_alive():
            for key, _ in selector.select(0.1):
                if not key.data.hear():
                    _leave(selector, key.data)
            for peer in _late(selector):
                _leave(selector, peer)
            while len(selector.get_map()) < PEERS:
                forms = Counter(key.data.form for key in selector.get_map().values())
                form = min(addresses, key=lambda form: forms[form])
                peer = Peer(form, addresses[form], arguments)
                selector.register(peer.socket, selectors.EVENT_READ, peer)


def _late(selector: selectors.BaseSelector) -> Iterator[Peer]:
    now = time.monotonic()
    return iter([key.data for key in selector.get_map().values() if key.data.due < now])


def _leave(selector: selectors.BaseSelector, peer: Peer) -> None:
    selector.unregister(peer.socket)
    peer.socket.close()
