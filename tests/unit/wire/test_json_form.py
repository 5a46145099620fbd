"""Values of the wire in JSON."""

from __future__ import annotations

from gossipkv.wire.json_form import json_form


def test_bytes_are_a_string_where_they_can_be():
    """Other bytes become base64, also in maps and lists; nothing else changes."""
    told = {"a": [b"lima", b"\xff", None], 7: {"b": b""}, "c": 1.5}
    assert json_form(told) == {"a": ["lima", {"base64": "/w=="}, None], "7": {"b": ""}, "c": 1.5}
