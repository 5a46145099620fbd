"""RESP as a node reads and answers it, slowly: a whole stream of bytes in, the answers in order out.

Databases are a function from a method and its parameters to the result or an `Error`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST_LINE = 65536
MAX_DATABASES = 64
BAD_COUNT, BAD_SIZE = "invalid multibulk length", "invalid bulk length"
TOO_LARGE = "the command is larger than max_frame, which is {} bytes"
INTEGER = b"-ERR value is not an integer or out of range\r\n"
NO_DATABASE = (
    b"-ERR the key has no colon; with SELECT 0, a key is DATABASE:KEY; else SELECT a number of resp_databases\r\n"
)
BAD_NAME = b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
PAGE = b"https://github.com/gossipkv/gossipkv/blob/main/docs/users/redis.md#transactions"
NO_TRANSACTIONS = b"-ERR transactions are not supported, and this command did nothing; see %s\r\n" % PAGE
ABORTED = b"-EXECABORT transactions are not supported, and nothing was written since MULTI; see %s\r\n" % PAGE
MAX_TTL_MS, MIN_EXPIRES_MS, MAX_EXPIRES_MS = 1 << 42, 10**12, (1 << 48) - 1
NO_HELLO = b"-ERR Syntax error in HELLO: HELLO [2 | 3 [AUTH name token] [SETNAME name]]\r\n"
ONE_KEY = {b"get": 2, b"strlen": 2, b"type": 2, b"getrange": 4, b"substr": 4}
LEAST = {
    b"mget": 2,
    b"exists": 2,
    b"set": 3,
    b"del": 2,
    b"setex": 4,
    b"psetex": 4,
    b"unlink": 2,
    b"echo": 2,
    b"select": 2,
    b"client": 2,
}
MOST = {b"ping": 2, b"echo": 2, b"select": 2, b"reset": 1}
EXPIRIES = {b"ttl": 1000, b"pttl": 1, b"expiretime": 1000, b"pexpiretime": 1}  # The units in milliseconds.
ONE_KEY |= dict.fromkeys(EXPIRIES, 2)
MOST |= {b"setex": 4, b"psetex": 4, b"multi": 1, b"exec": 1, b"discard": 1, b"unwatch": 1}


class Error(NamedTuple):
    """A failed request."""

    code: str
    message: str


class BrokenError(Exception):
    """The rest of the stream holds no command, for the given reason."""


def number_at(data: bytes, at: int, reason: str) -> tuple[int, int] | None:
    """Return the number before a line's end, and the start of the next line; None if the line is not complete."""
    found = re.compile(rb"-?[0-9]*").match(data, at)
    assert found is not None
    token, end = found[0], found.end()
    digits = token.lstrip(b"-")
    if digits and int(digits) >= 10**18:
        raise BrokenError(reason)
    if end == len(data) and len(token) <= 32:
        return None
    if len(token) >= 32 or data[end : end + 1] != b"\r" or not digits:
        raise BrokenError(reason)
    if end + 1 == len(data):
        return None
    if data[end + 1 : end + 2] != b"\n":
        raise BrokenError(reason)
    return int(token), end + 2


def split_words(line: bytes) -> list[bytes]:
    """Return the words of a line with Redis's quoting."""
    plain = rb"""[^\s"']"""
    double = rb'"(?:\\x[0-9a-fA-F]{2}|\\[\s\S]|[^"\\])*"(?=\s|$)'
    single = rb"'(?:\\'|[^'])*'(?=\s|$)"
    words = []
    at = 0
    while line[at:].strip(b" \t\n\r\v\f"):
        found = re.compile(rb"\s*((?:" + plain + rb"|" + double + rb"|" + single + rb")+)(?=\s|$)").match(line, at)
        if found is None:
            raise BrokenError("unbalanced quotes in request")
        parts = re.findall(rb"(" + double + rb")|(" + single + rb")|(" + plain + rb"+)", found[1])
        words.append(b"".join(_double(one) or _single(other) or bare for one, other, bare in parts))
        at = found.end()
    return words


def _double(quoted: bytes) -> bytes:
    def plain(found: re.Match[bytes]) -> bytes:
        if found[1] is not None:
            return bytes([int(found[1], 16)])
        return {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}.get(found[2], found[2])

    return re.sub(rb"\\(?:x([0-9a-fA-F]{2})|([\s\S]))", plain, quoted[1:-1])


def _single(quoted: bytes) -> bytes:
    return quoted[1:-1].replace(b"\\'", b"'")


def _lifetime(name: bytes, arguments: list[bytes]) -> tuple[bytes, dict[bytes, int]] | None:
    """Return the value of a SET with a lifetime and the option of `put`; None: Python answers, or it has none."""
    if name in {b"setex", b"psetex"}:
        value, option, number = arguments[2], b"ex" if name == b"setex" else b"px", arguments[1]
    elif name == b"set" and len(arguments) == 4:
        value, option, number = arguments[1], arguments[2].lower(), arguments[3]
    else:
        return None
    if option not in {b"ex", b"px", b"exat", b"pxat"} or not re.fullmatch(rb"[1-9][0-9]{0,17}", number):
        return None
    milliseconds = int(number) * (1 if option.startswith(b"p") else 1000)
    if option in {b"ex", b"px"}:
        return (value, {b"ttl_ms": milliseconds}) if milliseconds <= MAX_TTL_MS else None
    is_time = MIN_EXPIRES_MS <= milliseconds <= MAX_EXPIRES_MS
    return (value, {b"expires_at": milliseconds}) if is_time else None


def bulk(value: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(value), value)


@dataclass
class Connection:
    ask: Callable[[bytes, list[object]], object]
    selectable: list[bytes]
    max_frame: int
    now_ms: int = 0
    protocol: int = 2
    database: int = 0
    name: bytes = b""
    in_multi: bool = field(default=False, init=False)
    ended: bool = field(default=False, init=False)

    def answers(self, data: bytes) -> bytes:
        said = b""
        for words in self.commands(data):
            if isinstance(words, bytes):
                said += words
                self.ended = True
            elif words:
                said += self.answer(words)
            if self.ended:
                break
        return said

    def commands(self, data: bytes) -> Iterator[list[bytes] | bytes]:
        """Yield the words of each command; the last item may be the error of a broken stream."""
        at = 0
        while at < len(data):
            try:
                read = self._array(data, at) if data[at : at + 1] == b"*" else self._line(data, at)
            except BrokenError as error:
                yield b"-ERR Protocol error: %s\r\n" % str(error).encode()
                return
            if read is None:
                return
            words, at = read
            yield words

    def _line(self, data: bytes, at: int) -> tuple[list[bytes], int] | None:
        end = data.find(b"\n", at, at + LONGEST_LINE)
        if end < 0 and len(data) - at >= LONGEST_LINE:
            raise BrokenError("too big inline request, of more than 65536 bytes")
        return None if end < 0 else (split_words(data[at : end + 1]), end + 1)

    def _array(self, data: bytes, begin: int) -> tuple[list[bytes], int] | None:
        found = number_at(data, begin + 1, BAD_COUNT)
        if found is None:
            return None
        count, at = found
        if count > self.max_frame:
            raise BrokenError(TOO_LARGE.format(self.max_frame))
        words: list[bytes] = []
        while len(words) < count and at < len(data):
            if data[at : at + 1] != b"$":
                raise BrokenError("expected '$': a command is an array of strings")
            found = number_at(data, at + 1, BAD_SIZE)
            if found is None:
                return None
            size, at = found
            self._check(size, at + size + 2 - begin)
            words.append(data[at : at + size])
            at += size + 2
        if len(words) < count and at - begin >= self.max_frame:
            raise BrokenError(TOO_LARGE.format(self.max_frame))
        return (words, at) if len(words) >= count and at <= len(data) else None

    def _check(self, size: int, whole: int) -> None:
        if size < 0:
            raise BrokenError(BAD_SIZE)
        if whole > self.max_frame:
            raise BrokenError(TOO_LARGE.format(self.max_frame))

    def answer(self, words: list[bytes]) -> bytes:  # noqa: PLR0911  # One return for each kind of command.
        name, arguments = words[0].lower(), words[1:]
        least, most = ONE_KEY.get(name, LEAST.get(name, 1)), ONE_KEY.get(name, MOST.get(name, len(words)))
        if not least <= len(words) <= most:
            return b"-ERR wrong number of arguments for '%s' command\r\n" % name
        if name == b"watch" or (self.in_multi and name not in TAKEN_IN_MULTI):
            return NO_TRANSACTIONS
        if name in ONE_KEY or (name == b"exists" and len(words) == 2):
            return self._one(name, arguments)
        if name in {b"mget", b"exists"}:
            return self._reads(name, arguments)
        lifetime = _lifetime(name, arguments)
        if lifetime is not None:
            return self._write(b"put", arguments[0], lifetime[0], lifetime[1])
        if name == b"set" and len(words) == 3:
            return self._write(b"put", *arguments)
        if name in {b"del", b"unlink"} and len(words) == 2:
            return self._write(b"delete", *arguments)
        own = getattr(self, f"_{name.decode()}") if name in OWN else self._nothing
        said: bytes | None = own(arguments)
        return self._handed_over([words[0], *arguments]) if said is None else said

    # About data

    def _divided(self, word: bytes) -> tuple[bytes, bytes] | None:
        if self.database:
            return self.selectable[self.database - 1], word
        database, colon, key = word.partition(b":")
        return (database, key) if colon and len(database) <= 255 else None

    def _null(self) -> bytes:
        return b"_\r\n" if self.protocol == 3 else b"$-1\r\n"

    def _one(self, name: bytes, arguments: list[bytes]) -> bytes:
        divided = self._divided(arguments[0])
        if divided is None:
            return NO_DATABASE
        if not all(re.fullmatch(rb"-?[0-9]{1,18}", bound) for bound in arguments[1:]):
            return INTEGER
        result = self.ask(b"get", [*divided, *([{b"explain": True}] if name in EXPIRIES else [])])
        if isinstance(result, Error):
            return self._refused(result)
        assert isinstance(result, list)
        found: bytes | None = result[0]
        if name in EXPIRIES:
            return b":%d\r\n" % self._lifetime(name, found, result[2])
        value = found or b""
        first, last = (
            int(bound) + len(value) if int(bound) < 0 else int(bound) for bound in arguments[1:] or (b"0", b"0")
        )
        part = bulk(value[max(first, 0) : max(last + 1, 0)])
        return {
            b"get": self._null() if found is None else bulk(found),
            b"getrange": part,
            b"substr": part,
            b"type": b"+none\r\n" if found is None else b"+string\r\n",
            b"strlen": b":%d\r\n" % len(value),
            b"exists": b":%d\r\n" % (found is not None),
        }[name]

    def _lifetime(self, name: bytes, found: bytes | None, explained: dict[str, int]) -> int:
        if found is None or "expires_at" not in explained:
            return -2 if found is None else -1
        left_ms = max(0, explained["expires_at"] - (self.now_ms if name.endswith(b"ttl") else 0))
        return (left_ms + EXPIRIES[name] // 2) // EXPIRIES[name]

    def _write(self, method: bytes, word: bytes, *rest: object) -> bytes:
        divided = self._divided(word)
        if divided is None:
            return NO_DATABASE
        result = self.ask(method, [*divided, *rest])
        if isinstance(result, Error):
            return self._refused(result)
        return b"+OK\r\n" if method == b"put" else b":1\r\n"

    def _reads(self, name: bytes, words: list[bytes]) -> bytes:
        """Read the keys of each database by a request of its own."""
        divided = [self._divided(word) for word in words]
        keys: dict[bytes, list[bytes]] = {}
        for one in divided:
            if one is None:
                return NO_DATABASE
            keys.setdefault(one[0], []).append(one[1])
            if len(keys) > MAX_DATABASES:
                return b"-ERR the command has keys of more than 64 databases; split it into several commands\r\n"
        results = {database: self.ask(b"get_many", [database, asked]) for database, asked in keys.items()}
        wrong = next((result for result in results.values() if isinstance(result, Error)), None)
        if wrong is not None:
            return self._refused(wrong)
        found = {database: iter(result[0]) for database, result in results.items() if isinstance(result, list)}
        values = [next(found[one[0]]) for one in divided if one is not None]
        if name == b"exists":
            return b":%d\r\n" % sum(value is not None for value in values)
        return b"*%d\r\n" % len(values) + b"".join(self._null() if one is None else bulk(one) for one in values)

    @staticmethod
    def _refused(error: Error) -> bytes:
        return f"-{error.code} {error.message}\r\n".encode()

    # About the connection

    def _handed_over(self, words: list[bytes]) -> bytes:
        result = self.ask(b"resp", [self.protocol, self.database, self.name, words, b""])
        assert isinstance(result, bytes)
        return result

    def _nothing(self, _arguments: list[bytes]) -> None:
        """Ignore a command that Python handles."""

    def _ping(self, arguments: list[bytes]) -> bytes:
        return bulk(arguments[0]) if arguments else b"+PONG\r\n"

    def _echo(self, arguments: list[bytes]) -> bytes:
        return bulk(arguments[0])

    def _quit(self, _arguments: list[bytes]) -> bytes:
        self.ended = True
        return b"+OK\r\n"

    def _multi(self, _arguments: list[bytes]) -> bytes:
        was, self.in_multi = self.in_multi, True
        return b"-ERR MULTI calls can not be nested\r\n" if was else b"+OK\r\n"

    def _exec(self, _arguments: list[bytes]) -> bytes:
        was, self.in_multi = self.in_multi, False
        return ABORTED if was else b"-ERR EXEC without MULTI\r\n"

    def _discard(self, _arguments: list[bytes]) -> bytes:
        was, self.in_multi = self.in_multi, False
        return b"+OK\r\n" if was else b"-ERR DISCARD without MULTI\r\n"

    def _unwatch(self, _arguments: list[bytes]) -> bytes:
        return b"+OK\r\n"

    def _reset(self, _arguments: list[bytes]) -> bytes:
        self.in_multi = False
        self.protocol, self.database, self.name = 2, 0, b""
        return b"+RESET\r\n"

    def _select(self, arguments: list[bytes]) -> bytes:
        if not re.fullmatch(rb"-?[0-9]{1,18}", arguments[0]):
            return INTEGER
        if not 0 <= int(arguments[0]) <= len(self.selectable):
            return b"-ERR DB index is out of range\r\n"
        self.database = int(arguments[0])
        return b"+OK\r\n"

    def _client(self, arguments: list[bytes]) -> bytes | None:
        if arguments[0].lower() != b"setname" or len(arguments) != 2:
            return None
        return b"+OK\r\n" if self._named(arguments[1]) else BAD_NAME

    def _named(self, name: bytes) -> bool:
        if not re.fullmatch(rb"[!-~]{0,255}", name):
            return False
        self.name = name
        return True

    def _hello(self, arguments: list[bytes]) -> bytes | None:
        protocol = arguments[0] if arguments else b"%d" % self.protocol
        if not re.fullmatch(rb"-?[0-9]{1,18}", protocol):
            return b"-ERR Protocol version is not an integer or out of range\r\n"
        if int(protocol) not in {2, 3}:
            return b"-NOPROTO unsupported protocol version\r\n"
        name, left = self.name, arguments[1:]
        del arguments[:]  # The loop passes on the token alone.
        while left:
            if len(left) > 2 and left[0].lower() == b"auth":
                arguments[:], left = [left[2]], left[3:]
            elif len(left) > 1 and left[0].lower() == b"setname":
                name, left = left[1], left[2:]
            else:
                return NO_HELLO
        if not self._named(name):
            return BAD_NAME
        self.protocol = int(protocol)
        return None


TAKEN_IN_MULTI = {b"multi", b"exec", b"discard", b"reset", b"quit"}
OWN = {b"multi", b"exec", b"discard", b"unwatch", b"ping", b"echo", b"quit", b"reset", b"select", b"client", b"hello"}
