"""The peer of the gateway: an application of quart-trio that answers every key with the same bytes, under hypercorn.

Set up as its documentation says for production: one worker, Trio, keep-alive, no access log.
"""

from __future__ import annotations

import sys
from functools import partial

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from quart_trio import QuartTrio


def main() -> None:
    """Serve these bytes on that port."""
    value = sys.argv[2].encode()
    app = QuartTrio("constant")

    @app.get("/<database>/<path:key>")
    async def constant(database: str, key: str) -> tuple[bytes, dict[str, str]]:
        del database, key
        return value, {"Content-Type": "application/octet-stream"}

    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    config.accesslog = None
    config.errorlog = None
    config.keep_alive_max_requests = 1 << 40
    trio.run(partial(serve, app, config, mode="asgi"))


if __name__ == "__main__":
    main()
