"""Keys as people read and type them, in one form everywhere: text in quotes, and what is no text as `0x` and digits."""

from __future__ import annotations

from typing import Final

SHOWN_BYTES: Final = 60  # Of a key in a message: it still fits a line.


def shown(key: bytes) -> str:
    """Return a key in a message."""
    cut, more = key[:SHOWN_BYTES], "..." if len(key) > SHOWN_BYTES else ""
    text = cut.decode(errors="ignore" if more else "replace")  # A character may have been cut in two.
    is_text = text.isprintable() and (key.isascii() or key.decode(errors="replace").encode() == key)
    return f"{text!r}{more}" if is_text else f"0x{cut.hex()}{more}"


def typed(digits: str) -> bytes:
    """Read hexadecimal digits, with `0x` before them or not.  Raises ValueError: they are none."""
    return bytes.fromhex(digits.removeprefix("0x"))
