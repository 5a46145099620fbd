from __future__ import annotations

import base64

import pytest

from gossipkv.errors import ConfigError
from gossipkv.gossip.packets.key_ring import MAX_KEYS, installed, key, line_of, parse, removed, used

ONE, OTHER, THIRD = (key(bytes([number]) * 32) for number in (1, 2, 3))


def encoded(secret: bytes) -> str:
    return base64.b64encode(secret).decode()


def test_a_ring_is_read() -> None:
    """Each line has a key, in order; comments and empty lines do not count."""
    text = f"# ring\n\n{encoded(ONE.secret)}\n   {encoded(OTHER.secret)}  # the next one\n"
    assert parse(text, "ring") == (ONE, OTHER)


WRONG = [
    ("", "file has no key"),
    ("# nothing\n", "file has no key"),
    ("not base64!\n", "line 1: expected a key"),
    (f"\n{encoded(bytes(31))}\n", "line 2: expected a key of 32 bytes in base64, got 31"),
    (f"{encoded(ONE.secret)}\n{encoded(ONE.secret)}\n", "line 2: key [0-9a-f]{8} is in the file twice"),
    ("\n".join(encoded(bytes([n]) * 32) for n in range(MAX_KEYS + 1)), "17 keys, at most 16"),
    ("ключ\n", "line 1: expected a key"),
]


@pytest.mark.parametrize(("text", "told"), WRONG)
def test_a_wrong_ring_is_refused(text: str, told: str) -> None:
    """The error names the file and the line, and does not show the line."""
    with pytest.raises(ConfigError, match=told) as refused:
        parse(text, "ring")
    assert str(refused.value).startswith("ring: ")
    assert not any(line.strip() in str(refused.value) for line in text.splitlines() if line.strip()[1:])


def test_a_key_does_not_show_itself() -> None:
    """The log shows the id of a key."""
    assert repr(ONE) == f"Key({ONE.id.hex()})"
    assert str([ONE]) == f"[Key({ONE.id.hex()})]"


def test_ids_are_four_bytes_of_a_hash() -> None:
    """The id of a key is fixed, so that files and logs of later versions name the same key."""
    assert ONE.id.hex() == "2fe12d1f"


RING = f"# rack keys\n{encoded(ONE.secret)}\n\n# the next\n{encoded(OTHER.secret)}  # from May on"


def test_a_line_of_a_file_is_the_key_and_its_id() -> None:
    """The line reads back as the key, with the id as a comment."""
    assert line_of(ONE) == f"{encoded(ONE.secret)}  # {ONE.id.hex()}\n"
    assert parse(line_of(ONE), "ring") == (ONE,)


def test_install_adds_behind() -> None:
    """The sealing key stays, a known key is not added again, and comments stay."""
    text = installed(RING, [THIRD, OTHER], "ring")
    assert parse(text, "ring") == (ONE, OTHER, THIRD)
    assert text == f"{RING}\n{line_of(THIRD)}"
    assert parse(installed(text, [ONE], "ring"), "ring") == (ONE, OTHER, THIRD)


def test_use_moves_to_the_front() -> None:
    """The chosen key seals; other keys keep their order and comments their places."""
    text = used(RING, OTHER.id, "ring")
    assert parse(text, "ring") == (OTHER, ONE)
    assert text.startswith(f"# rack keys\n{encoded(OTHER.secret)}  # from May on\n{encoded(ONE.secret)}\n")
    assert used(RING, ONE.id, "ring") == RING


def test_remove_takes_out() -> None:
    """The sealing key cannot be removed: the next key may not be on all nodes yet."""
    assert parse(removed(RING, OTHER.id, "ring"), "ring") == (ONE,)
    with pytest.raises(ConfigError, match=f"key {ONE.id.hex()} seals gossip; first use another key"):
        removed(RING, ONE.id, "ring")


@pytest.mark.parametrize("change", [used, removed])
def test_a_key_that_is_not_there(change) -> None:
    """The error names the existing keys."""
    with pytest.raises(
        ConfigError, match=f"the file has no key {THIRD.id.hex()}; its keys are {ONE.id.hex()}, {OTHER.id.hex()}"
    ):
        change(RING, THIRD.id, "ring")


def test_a_full_ring_takes_no_more() -> None:
    """The limit also holds for added keys."""
    with pytest.raises(ConfigError, match="18 keys, at most 16"):
        installed(RING, [key(bytes([n]) * 32) for n in range(10, 10 + MAX_KEYS)], "ring")
