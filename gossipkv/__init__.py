"""GossipKV: a key-value store in which every node is the same program and there is no coordinator.

`import gossipkv` loads neither Trio nor a node: a client in a script costs what a client costs.
"""

from gossipkv import unbuilt

unbuilt.install()
