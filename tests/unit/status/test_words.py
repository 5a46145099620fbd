"""Values, sizes and durations are shown as people read them."""

from __future__ import annotations

from gossipkv.status.words import MAX_NAMED, duration_text, names_text, plain, printable, size_text, some_text
from gossipkv.wire.key_text import shown


def test_nothing_breaks_a_line_or_commands_a_terminal():
    """Unprintable characters are shown by their escapes."""
    assert printable("a\n\x1b[31m\u202eb") == "a\\n\\x1b[31m\\u202eb"
    assert (plain(None), plain(b"\xff"), plain(7), plain("x\ty")) == ("-", "0xff", "7", "x\\ty")
    assert shown(b"k" * 100) == f"'{'k' * 60}'..."


def test_names_in_a_sentence():
    """The first names are listed, and the rest is counted."""
    assert [names_text(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
    many = [f"n{number}" for number in range(MAX_NAMED + 2)]
    assert some_text(many[:MAX_NAMED]).endswith("n6 and n7")
    assert some_text(many).endswith("n6, n7 and 2 more")


def test_sizes_and_durations_have_two_parts_at_most():
    """The unit is the one that is easiest to read."""
    assert [size_text(size) for size in (0, 999, 1000, 1024**2, 5 * 1024**5)] == [
        "0 B", "999 B", "1.0 KiB", "1.0 MiB", "5120.0 TiB",
    ]  # fmt: skip
    assert [duration_text(seconds) for seconds in (0, 59, 61, 3_600, 90_061)] == [
        "0 s", "59 s", "1 min 1 s", "1 h 0 min", "1 d 1 h",
    ]  # fmt: skip
