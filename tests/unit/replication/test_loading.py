"""Loading: a copy below every log comes by what it lacks, and nothing is lost or comes back on the way."""

from __future__ import annotations

from tests.unit.replication.memory import Cluster


def left_behind(cluster, node, **values):
    """Have a node cut off while the others write, and let go of their logs."""
    cluster.cut(node)
    first = next(one for one in cluster.nodes if one is not node)
    first.write(**(values or {f"k{number}": b"new" for number in range(9)}))
    cluster.pass_s(0.5)
    for other in cluster.nodes:
        if other is not node:
            other.trim()


def test_a_copy_below_every_log_loads():
    """It has all that the others have, and its log begins there."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    three.write(a=b"1")
    cluster.pass_s(0.5)
    left_behind(cluster, three)
    space = three.copy.space
    cluster.connect(three)
    cluster.until(lambda: cluster.is_level)
    assert three.told == ["began", "done"]
    assert one.live == two.live == three.live
    assert len(three.live) == 10
    assert three.copy.space != space
    assert space not in three.spaces
