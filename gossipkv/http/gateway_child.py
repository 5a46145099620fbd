"""The process of a node's gateway (`beside`): `python -m gossipkv.http.gateway_child`."""

from __future__ import annotations

import sys

from gossipkv import garbage

garbage.leave()

from gossipkv.http.beside import main  # noqa: E402  # No garbage is collected while modules load.

if __name__ == "__main__":
    garbage.keep()
    sys.exit(main())
