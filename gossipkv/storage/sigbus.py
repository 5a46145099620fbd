"""The handler of SIGBUS, the signal for a mapped page that cannot be read; a program installs it to survive that."""

from __future__ import annotations

from gossipkv.storage._storage import install_handler as install

__all__ = ["install"]
