"""GossipKV: a key-value store in which every node is the same program and there is no coordinator.

Under Trio (`connect`):

    async with gossipkv.connect("127.0.0.1:7070") as client:
        await client.dataset("geo").get("paris")

In plain threads and scripts (`blocking.connect`):

    with gossipkv.blocking.connect("127.0.0.1:7070") as client:
        client.dataset("geo").get("paris")

`import gossipkv` loads neither Trio nor a node: a client in a script costs what a client costs.
"""

# The rest takes 30 ms, and Ctrl-C amid that should say nothing.
from gossipkv import interrupt

if interrupt.is_program():
    interrupt.exit_at_once()

from importlib import import_module
from typing import TYPE_CHECKING

from gossipkv import errors, unbuilt

if TYPE_CHECKING:
    from gossipkv.client import blocking
    from gossipkv.client.trio_client import connect

unbuilt.install()  # What is missing should say so from the first extension on.

__all__ = ["blocking", "connect", "errors"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`blocking` and `connect`, which loads Trio, when somebody asks for them."""
    if name == "blocking":
        return import_module("gossipkv.client.blocking")
    if name == "connect":
        return import_module("gossipkv.client.trio_client").connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What a user may rely upon, and nothing of how it is made."""
    return [*__all__, "__doc__", "__version__"]


interrupt.raise_again()  # What comes now may be anybody's program; `__main__` goes on with it.
