"""Values of the wire in JSON: bytes become a string if they are UTF-8, else `{"base64": "…"}`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value


def json_form(value: Value) -> Value:
    """Return `value` with its bytes in a form that JSON supports."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {str(name): json_form(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_form(item) for item in value]
    return value
