"""The invariants of a wanted map of a hash table, checked one by one."""

from collections import Counter

from gossipkv.placement.spread import _shapes


def fault_of_map(nodes, replication, wanted, groups=()):
    """Return the invariant that a wanted map breaks; empty if there is none."""
    for shape, partitions in _shapes(nodes, replication, len(wanted), groups):
        isolation = dict(zip(shape.nodes, shape.isolation, strict=True))
        load = Counter()
        for at in partitions:
            held = [node for node in wanted[at] if node is not None]
            load.update(held)
            if len(set(held)) < len(held):
                return f"partition {at} has a node twice"
            if not isolation.keys() >= set(held):
                return f"partition {at} lies on a node that is none of its own"
            if len(held) != shape.slots:
                return f"partition {at} has {len(held)} slots, not {shape.slots}"
            of_group = Counter(isolation[node] for node in held)
            if any(not low <= of_group[at] <= high for at, (low, high) in enumerate(shape.of_group)):
                return f"partition {at} is not as far apart as can be"
        for node, ideal in zip(shape.nodes, shape.ideal, strict=True):
            if abs(load[node] - ideal * len(partitions)) >= 1:
                return f"node {node.hex()} has {load[node]} slots, its ideal is {float(ideal * len(partitions)):.1f}"
    return ""
