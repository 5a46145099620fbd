"""GossipKV: a key-value store in which every node is the same program and there is no coordinator.

`import gossipkv` loads neither Trio nor a node: a client in a script costs what a client costs.

    with gossipkv.blocking.connect("127.0.0.1:7070") as client:
        client.dataset("geo").get("paris")
"""

from gossipkv import errors, unbuilt

unbuilt.install()

from gossipkv.client import blocking  # noqa: E402  # What is missing should say so from the first extension on.

__all__ = ["blocking", "errors"]
__version__ = "0.1.0"
