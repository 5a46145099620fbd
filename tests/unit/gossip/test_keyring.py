from __future__ import annotations

import base64

import pytest

from gossipkv.errors import ConfigError
from gossipkv.gossip.keyring import MAX_KEYS, key, line_of, parse

ONE, OTHER = (key(bytes([number]) * 32) for number in (1, 2))


def test_a_ring_is_read() -> None:
    """A key a line, in order; comments and empty lines do not count."""
    text = f"# ring\n\n{line_of(ONE.secret)}\n   {line_of(OTHER.secret)}  # the next one\n"
    assert parse(text, "ring") == (ONE, OTHER)


WRONG = [
    ("", "no key in it"),
    ("# nothing\n", "no key in it"),
    ("not base64!\n", "line 1: expected a key"),
    (f"\n{base64.b64encode(bytes(31)).decode()}\n", "line 2: expected a key of 32 bytes in base64, got 31"),
    (f"{line_of(ONE.secret)}\n{line_of(ONE.secret)}\n", "line 2: key [0-9a-f]{8} stands there twice"),
    ("\n".join(line_of(bytes([n]) * 32) for n in range(MAX_KEYS + 1)), "17 keys, at most 16"),
    ("ключ\n", "line 1: expected a key"),
]


@pytest.mark.parametrize(("text", "told"), WRONG)
def test_a_wrong_ring_is_refused(text: str, told: str) -> None:
    """The error names the file and the line, and does not show what stands there."""
    with pytest.raises(ConfigError, match=told) as refused:
        parse(text, "ring")
    assert str(refused.value).startswith("ring: ")
    assert not any(line.strip() in str(refused.value) for line in text.splitlines() if line.strip()[1:])


def test_a_key_does_not_show_itself() -> None:
    """What is logged of a key is its id."""
    assert repr(ONE) == f"Key({ONE.id.hex()})"
    assert str([ONE]) == f"[Key({ONE.id.hex()})]"


def test_ids_are_four_bytes_of_a_hash() -> None:
    """The id of a key is fixed: files and logs of later versions name the same."""
    assert ONE.id.hex() == "2fe12d1f"
