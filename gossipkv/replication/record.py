"""What stands in a copy for a key: a record; what one is stands in `_record.pyx`, and its bytes in `_record.pxd`."""

from __future__ import annotations

from gossipkv.replication._record import DELETED, PUT, Record, check, decode, dot, encode, value, wins

__all__ = ["DELETED", "PUT", "Record", "check", "decode", "dot", "encode", "value", "wins"]
