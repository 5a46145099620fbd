"""The signal that a mapped file sends which cannot be read any more: a program chooses to outlive it."""

from __future__ import annotations

from gossipkv.storage._storage import install_handler as install

__all__ = ["install"]
