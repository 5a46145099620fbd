"""The records of JSON lines by the standard library, which makes objects and so needs help to keep the text."""

from __future__ import annotations

import base64
import binascii
import json
import re

STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
SPACE = re.compile(r"[ \t\r\n]*")
DEEPEST = 1024


def no_constant(word: str) -> float:
    raise ValueError(word)


DECODER = json.JSONDecoder(parse_constant=no_constant, parse_int=str, parse_float=str)


def records(data: bytes, key: str = "key", value: str = "value") -> list[tuple[bytes, bytes]]:
    """Return the records; raises ValueError with the number of the first line that is none."""
    found = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip(b" \t\r"):
            try:
                found.append(record(line.decode(), key, value))
            except (ValueError, KeyError, UnicodeError, RecursionError):
                raise ValueError(number) from None
    return found


def record(line: str, key: str, value: str) -> tuple[bytes, bytes]:
    members = texts(line)
    names = [name for name, _ in members]
    if names.count(key) > 1 or names.count(value) > 1:
        raise ValueError("twice")
    of = dict(members)
    if of[value] == "null" or not (of[key][0] in '"{' or is_plain(of[key])):
        raise ValueError("null, or a key of another kind")
    served = served_bytes(of[key])
    if of[key][0] == "{" and served == of[key].encode():
        raise ValueError("a key that is an object")
    return served, served_bytes(of[value])


def is_plain(text: str) -> bool:
    """Return True for a whole number of 64 bits, and for true and false."""
    if text in {"true", "false"}:
        return True
    is_whole = re.fullmatch(r"0|-?[1-9][0-9]*", text, re.ASCII) is not None
    return is_whole and -(2**63) <= int(text) < 2**64


def texts(line: str) -> list[tuple[str, str]]:
    """Return the members of an object, each with its text without spaces."""
    whole, end = DECODER.raw_decode(line, SPACE.match(line).end())
    if not isinstance(whole, dict) or SPACE.match(line, end).end() != len(line):
        raise ValueError("no object")
    for match in STRING.finditer(line):
        json.loads(match[0]).encode()  # Fails for half a surrogate pair.
    members = []
    at = line.index("{") + 1
    while True:
        at = SPACE.match(line, at).end()
        if line[at] in "},":
            if line[at] == "}":
                return members
            at = SPACE.match(line, at + 1).end()
        name = STRING.match(line, at)
        start = SPACE.match(line, SPACE.match(line, name.end()).end() + 1).end()
        _, at = DECODER.raw_decode(line, start)
        text = STRING.sub(lambda found: found[0].replace(" ", "\0"), line[start:at])
        if depth(text) > DEEPEST:
            raise ValueError("too deep")
        members.append((json.loads(name[0]), re.sub(r"[ \t\r\n]", "", text).replace("\0", " ")))


def depth(text: str) -> int:
    deepest = now = 0
    for character in STRING.sub("", text):
        now += (character in "{[") - (character in "}]")
        deepest = max(deepest, now)
    return deepest


def served_bytes(text: str) -> bytes:
    if text[0] == '"':
        return json.loads(text).encode()
    pairs = json.loads(text, object_pairs_hook=list, parse_int=str) if text[0] == "{" else None
    if pairs and len(pairs) == 1 and pairs[0][0] == "base64" and isinstance(pairs[0][1], str):
        if len(pairs[0][1]) % 4:
            raise ValueError("base64")
        try:
            return base64.b64decode(pairs[0][1], validate=True)
        except binascii.Error:
            raise ValueError("base64") from None
    return text.encode()
