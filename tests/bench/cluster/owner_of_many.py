"""A node that says it has all partitions of a large version: `python -m tests.bench.cluster.owner_of_many COUNT …`.

The rest is as for `gossipkv serve`.  There are no files: so many cannot all be mapped (`vm.max_map_count`).  All else
is a node's: it publishes its statement, answers the direct question with a seal for each partition, and has it active.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gossipkv import cli
from gossipkv.dataset.cluster.own_copy import OwnCopy
from gossipkv.dataset.cluster.part import PartInCluster
from gossipkv.dataset.library import Library
from gossipkv.placement.identity import Identity
from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Iterable

DATABASE, VERSION = "many", "1"
DIGEST = "ab" * 32
KIND = "1/none"  # Of the files: format and compression.


def copy_of(identity: Identity) -> OwnCopy:
    """What would be here if all were."""
    whole = PartitionSet.whole(identity.partitions)
    return OwnCopy(
        version=identity.version,
        digest=identity.digest,
        partitions=identity.partitions,
        identity=identity,
        progress=100,
        share=whole,
        ready=whole,
        seals={KIND: dict.fromkeys(range(identity.partitions), 7)},
    )


def main(partitions: int, arguments: list[str]) -> None:
    """`serve`, whose database is told of a copy that is not there."""
    hear_of, tell = Library.hear_of, PartInCluster._tell  # Where a copy is told.
    identity = Identity(DATABASE, VERSION, DIGEST, partitions, "sequins", regrouped=False)
    copy = copy_of(identity)

    def hear_of_it_too(self: Library, databases: Iterable[str]) -> None:
        hear_of(self, [*databases, DATABASE])

    def tell_of_it_too(self: PartInCluster, hold: str | None) -> None:
        tell(self, hold)
        if self.core.name == DATABASE:
            self.core.tell_copy(copy)
            self.core.activate(identity)

    Library.hear_of = hear_of_it_too
    PartInCluster._tell = tell_of_it_too
    sys.exit(cli.run(["serve", *arguments]))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
