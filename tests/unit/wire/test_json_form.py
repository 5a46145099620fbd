"""Values of the wire as JSON has them."""

from __future__ import annotations

from gossipkv.wire.json_form import json_form


def test_bytes_are_a_string_where_they_can_be():
    """Else base64; in maps and lists as well, and nothing else changes."""
    told = {"a": [b"lima", b"\xff", None], 7: {"b": b""}, "c": 1.5}
    assert json_form(told) == {"a": ["lima", {"base64": "/w=="}, None], "7": {"b": ""}, "c": 1.5}
