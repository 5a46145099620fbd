"""Keys in one form for people to read and type: text in quotes, other bytes as `0x` and digits."""

from __future__ import annotations

from typing import Final

SHOWN_BYTES: Final = 60  # Longer keys in messages are cut, to fit a line.


def shown(key: bytes) -> str:
    """Return a key as shown in a message."""
    cut, more = key[:SHOWN_BYTES], "..." if len(key) > SHOWN_BYTES else ""
    text = cut.decode(errors="ignore" if more else "replace")  # The cut may split a character.
    is_text = text.isprintable() and (key.isascii() or key.decode(errors="replace").encode() == key)
    return f"{text!r}{more}" if is_text else f"0x{cut.hex()}{more}"


def typed(digits: str) -> bytes:
    """Parse hexadecimal digits, with or without `0x`. Raises ValueError if they are invalid."""
    return bytes.fromhex(digits.removeprefix("0x"))
