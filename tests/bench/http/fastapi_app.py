"""The peer of a node that is asked by HTTP: FastAPI on uvicorn, which looks values up by path in a dictionary.

Set up as its documentation says for production, and as quick as it gets: httptools and uvloop, one worker, no access
log, and a `Response` of its own, so that nothing is validated or made JSON.
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI, HTTPException, Response

from tests.bench import data


def main() -> None:
    """Serve so many records on that port."""
    values = {key.decode(): value for key, value in data.make(int(sys.argv[2])).records}
    app = FastAPI(openapi_url=None)

    @app.get("/{database}/{key:path}")
    async def get(database: str, key: str) -> Response:
        value = values.get(key)
        if value is None:
            raise HTTPException(404)
        return Response(value, media_type="application/octet-stream")

    uvicorn.run(
        app, host="127.0.0.1", port=int(sys.argv[1]), http="httptools", loop="uvloop", log_level="warning",
        access_log=False,
    )  # fmt: skip


if __name__ == "__main__":
    main()
