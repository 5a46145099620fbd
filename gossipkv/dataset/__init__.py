"""Immutable databases: what lies at a source root, how a version of it is built, kept and switched to.

What jobs outside a node call to write such versions is here by name; it loads no Trio.
"""

from gossipkv.dataset.partition_set import VersionReport, finish_version
from gossipkv.dataset.partition_writer import PartitionReport, partition_of, write_partition

__all__ = ["PartitionReport", "VersionReport", "finish_version", "partition_of", "write_partition"]
