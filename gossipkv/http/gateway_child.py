"""The process of a node's gateway (`beside`): `python -m gossipkv.http.gateway_child`."""

from __future__ import annotations

import sys

from gossipkv import garbage

garbage.leave()

from gossipkv.http.beside import main  # noqa: E402  # Loading is what makes no garbage.

if __name__ == "__main__":
    garbage.keep()
    sys.exit(main())
