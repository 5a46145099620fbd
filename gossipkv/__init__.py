"""GossipKV: a key-value store in which every node is the same program and there is no coordinator.

Under asyncio (`aio.connect`), and the same under Trio (`connect`):

    async with gossipkv.aio.connect("127.0.0.1:7070") as client:
        await client.dataset("geo").get("paris")

In plain threads and scripts (`blocking.connect`):

    with gossipkv.blocking.connect("127.0.0.1:7070") as client:
        client.dataset("geo").get("paris")

`import gossipkv` loads no event loop and no node, so a script pays for a client only.
"""

# Loading the rest takes 30 ms, and Ctrl-C during that should print nothing.
from gossipkv import interrupt

if interrupt.is_program():
    interrupt.exit_at_once()

from importlib import import_module
from typing import TYPE_CHECKING

from gossipkv import errors, unbuilt

if TYPE_CHECKING:
    from gossipkv.client import aio, blocking
    from gossipkv.client.trio_client import Client, connect

unbuilt.install()  # Installed first, so that any missing extension is reported.

__all__ = ["Client", "aio", "blocking", "connect", "errors"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load a client on first use; `connect` and `Client` load Trio."""
    if name in {"aio", "blocking"}:
        return import_module(f"gossipkv.client.{name}")
    if name in {"connect", "Client"}:
        return getattr(import_module("gossipkv.client.trio_client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, without implementation details."""
    return [*__all__, "__doc__", "__version__"]


interrupt.raise_again()  # From here on, the importer may be any program; `__main__` exits at once again.
