"""What stands below a path, beside a list of everything that is looked through anew."""

from __future__ import annotations

from random import Random

import pytest

from gossipkv.gossip.tree.index import Index

OWNERS = (b"one", b"two")
NAMES = ("a", "a0", "a-", "a.b", "b", "\u00e4", "0")  # Beside each other and beside "/", in any order of letters.


@pytest.mark.parametrize("seed", range(40))
def test_it_is_what_stands_there(seed: int) -> None:
    """Keys and names above keys, of whoever has them, after any additions and removals."""
    random, index = Random(seed), Index()
    kept: dict[bytes, set[str]] = {owner: set() for owner in OWNERS}
    for _ in range(200):
        owner = random.choice(OWNERS)
        path = "/".join(random.choices(NAMES, k=random.randint(1, 4)))
        if path in kept[owner]:
            index.remove(owner, [path])
            kept[owner].remove(path)
        else:
            index.add(owner, [path])
            kept[owner].add(path)
        place = "/".join(random.choices(NAMES, k=random.randint(0, 2)))
        prefix = f"{place}/" if place else ""
        below = [(key[len(prefix) :], who) for who in OWNERS for key in kept[who] if key.startswith(prefix)]
        assert index.names(place) == {key.partition("/")[0] for key, _ in below}
        assert sorted(index.leaves(place)) == sorted((key, who) for key, who in below if "/" not in key)


def test_a_key_that_is_not_there_is_caught() -> None:
    """It would be another's that goes."""
    index = Index()
    index.add(b"one", ["a", "c"])
    for path in ("b", "d"):
        with pytest.raises(AssertionError):
            index.remove(b"one", [path])


def test_who_has_nothing_may_have_it_removed() -> None:
    """As when a member leaves that has taken back all of its keys."""
    index = Index()
    index.add(b"one", ["a"])
    index.remove(b"one", ["a"])
    index.remove(b"one", [])
    index.add(b"one", [])
    index.remove(b"one", [])
    assert (index.names(""), index.leaves("")) == (set(), [])
