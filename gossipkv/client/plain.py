"""The methods of a client and its datasets and tables, which return when they are done, as in plain threads.

They are written once, and type checkers see the stub of this module (`make stubs`).
"""

from gossipkv.client.calls import Calls as Client
from gossipkv.client.dataset import Dataset
from gossipkv.client.table import Table

__all__ = ["Client", "Dataset", "Table"]
