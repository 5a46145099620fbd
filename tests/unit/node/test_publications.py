"""A refused publication is logged once and reported as long as it is missing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from gossipkv.address import Address
from gossipkv.errors import BadRequest, ConfigError, TooLarge
from gossipkv.gossip.core import Gossip, GossipLimits, Me
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.prefix import NO_CLUSTER
from gossipkv.gossip.profile import LAN
from gossipkv.gossip.tree.limits import TreeLimits
from gossipkv.node.gossip import ClaimsInTree, check_room
from gossipkv.node.publications import Publications
from gossipkv.placement.shard_claim import ShardClaim
from gossipkv.settings.config import load
from tests.world.logs import capture_logs

if TYPE_CHECKING:
    from gossipkv.gossip.tree.tree import GossipTree

ADDRESS = Address("10.0.0.1", 7070)


@pytest.fixture
def tree() -> GossipTree:
    """Return the tree of a node that may publish three keys."""
    me = Me("a", b"u" * 16, 1, ADDRESS, "c", NO_CLUSTER, pinned=False)
    limits = GossipLimits(tree=TreeLimits(max_branch_bytes=800))
    core = Gossip(me, LAN, random.Random(1), limits=limits, envelope=Envelope("c"))
    core.start(joins=[], remembered=[], now_ms=0)
    return core.tree


def test_what_is_refused_is_said_until_it_is_published(tree: GossipTree) -> None:
    """One log line; published keys stay, and a retry uses room that became free."""
    mine = Publications(tree)
    with capture_logs() as logs:
        for path in ("p/1", "p/2", "p/3"):
            mine.publish(path)
        assert mine.error is None
        for path in ("p/4", "p/5", "p/4"):
            with pytest.raises(TooLarge):
                mine.publish(path, b"x")
    (line,) = logs
    assert (line["event"], line["path"], line["log_level"]) == ("not_published", "p/4", "warning")
    assert list(tree.published()) == ["p/1", "p/2", "p/3"]
    assert mine.error == (
        "the tree refused 2 of this node's entries, such as p/4: the tree has no room: 1037 bytes, max_branch is 800"
    )
    assert mine.withdraw("p/1")
    mine.publish("p/4", b"x")
    assert (mine.error or "").startswith("the tree refused 1 of this node's entries, such as p/5: ")
    assert not mine.withdraw("p/5")  # The key is not wanted any more.
    assert mine.error is None
    with pytest.raises(BadRequest):
        mine.publish("/")
    assert mine.error is None


def test_a_claim_that_is_refused_is_said_until_one_is_published(tree: GossipTree) -> None:
    """Only the last refused id counts, and none once an id is published."""
    mine = Publications(tree)
    claims = ClaimsInTree(tree, mine)
    claim = ShardClaim(
        claims, name="a", uuid=b"u" * 16, address=ADDRESS, configured=None, remembered=None, settle_ms=1000
    )
    mine.publish("p/1", bytes(300))
    assert claim.step(now_ms=0) is None
    assert (mine.error or "").startswith("the tree refused 1 of this node's entries, such as nodes/1@")
    with pytest.raises(TooLarge):
        claims.publish("nodes/2@a:1", bytes(300))
    assert (mine.error or "").startswith("the tree refused 1 of this node's entries, such as nodes/2@a:1")
    mine.withdraw("p/1")
    claim.step(now_ms=1000)
    assert (claim.shard_id, mine.error) == ("1", None)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"MAX_MEMBERS": "1025"}, r"GOSSIPKV_MAX_MEMBERS: max_members = 1025 .*set max_tree = 262400KiB"),
        ({"MAX_TREE": "255MiB"}, r"GOSSIPKV_MAX_TREE: max_members = 1024 .*256MiB.* or max_members = 1020"),
        ({"MAX_TREE": "1MiB", "MAX_MEMBERS": "5"}, r"MAX_MEMBERS: .*which is above max_tree = 1MiB"),
    ],
)
def test_a_node_without_room_for_its_members_does_not_start(environ: dict[str, str], said: str) -> None:
    """The error names the setting and gives advice."""
    with pytest.raises(ConfigError, match=said):
        check_room(load(environ={f"GOSSIPKV_{name}": text for name, text in environ.items()}))


def test_a_node_with_just_enough_room_starts() -> None:
    check_room(load())
    check_room(load(environ={"GOSSIPKV_MAX_TREE": "1MiB", "GOSSIPKV_MAX_MEMBERS": "4"}))
