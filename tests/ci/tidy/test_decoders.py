"""Each place that decodes bytes from outside is known, with the limit that stands before it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.ci.tidy.planted import plant
from tests.ci.tidy.source import ROOT, sources

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ci.tidy.source import Source

CALLS = re.compile(r"\b(?:unpackb|Unpacker|decompressobj|zlib\.decompress|block\.decompress|gzip\.decompress)\(")
FILES = "gossipkv/dataset/"  # Files of sources: their own tests hold the limits of their formats.

# The frame scanner has bounded size, elements and depth of each of these: requests, and answers of nodes and clients.
SCANNED = {
    "gossipkv/serving/reads.py": "records of the loop about a node's answer",
    "gossipkv/serving/scan.py": "the end of a node's answer",
    "gossipkv/table/rpc/local_calls.py": "results of this node's own methods",
    "gossipkv/wire/arguments.py": "the parameters of a request",
    "gossipkv/wire/rpc.py": "requests and answers",
    "src_ext/gossipkv/client/requests.pyx": "answers, at a client",
}
# Bytes that a node or an operator wrote: they come from the own disk, from a member, or with a record.
OWN = {
    "gossipkv/backup/partition.py": "pages of a member",
    "gossipkv/cli/gossip.py": "a value that the asked node shows to an operator",
    "gossipkv/feast.py": "a record, in the process of its reader",
    "gossipkv/node/sharing.py": "the statement of a member",
    "gossipkv/placement/shard_claim.py": "a claim in the tree, whose entries are bounded",
    "gossipkv/placement/statement.py": "a statement in the tree, whose entries are bounded",
    "gossipkv/register/messages.py": "messages of members",
    "gossipkv/register/edits.py": "values of members, each of a bounded size",
    "gossipkv/register/metadata/packing.py": "records of maps, each of a bounded size",
    "gossipkv/register/seen.py": "records on the own disk",
    "gossipkv/register/state.py": "records on the own disk",
    "gossipkv/replication/replica/bootstrap.py": "records on the own disk",
    "gossipkv/replication/replica/keys.py": "records on the own disk",
    "gossipkv/replication/shell.py": "records on the own disk",
    "gossipkv/replication/snapshot/transfer.py": "pages of a member",
    "gossipkv/replication/stream/messages.py": "answers of a member",
    "gossipkv/table/controllers/smear_schedule.py": "records on the own disk",
    "gossipkv/table/peers/hints.py": "hints in the tree, whose entries are bounded",
    "gossipkv/table/peers/peer_client.py": "answers of a member",
    "gossipkv/table/records/changes.py": "answers of a member",
    "src_ext/gossipkv/replication/expiry.pyx": "keys of the own store",
    "gossipkv/table/records/range_deletion.py": "a page that this node has just read",
}
# Each of these has a limit of its own at the call.
BOUNDED = {
    "gossipkv/gossip/packets/compression.py": "datagrams, whose head states a checked size",
    "gossipkv/storage/compression.py": "blocks of sorted files, whose size is known",
    "gossipkv/wire/opaque.py": "the decoder of all strings that clients return",
}
KNOWN = {**SCANNED, **OWN, **BOUNDED}


def unknown_decoders(tree: list[Source], known: set[str]) -> list[str]:
    """Report modules that decode and are not listed, and listed ones that do not decode."""
    found = {source.where for source in tree if CALLS.search(source.text) and not source.where.startswith(FILES)}
    return [
        *(
            f"{where}: decodes bytes: use `wire.opaque.unpack`, or list the limit here"
            for where in sorted(found - known)
        ),
        *(f"{where}: listed, but decodes nothing" for where in sorted(known - found)),
    ]


def test_each_decoder_is_known_with_its_limit() -> None:
    """A string that a client can return is decoded by `wire.opaque` alone."""
    assert unknown_decoders(sources(ROOT, "gossipkv", "src_ext/gossipkv"), {*KNOWN}) == []


def test_a_planted_decoder_is_found(tmp_path: Path) -> None:
    """A new call of a decoder is reported, and so is a line of the list that became wrong."""
    tree = plant(tmp_path, {"gossipkv/new.py": "value = msgpack.unpackb(cursor)\n", "gossipkv/idle.py": "x = 1\n"})
    assert [line.split(":")[0] for line in unknown_decoders(tree, {"gossipkv/idle.py"})] == [
        "gossipkv/new.py",
        "gossipkv/idle.py",
    ]
