"""CRC-32C for Python callers."""

from __future__ import annotations

from gossipkv.storage._storage import HARDWARE, crc32c

__all__ = ["HARDWARE", "crc32c"]
