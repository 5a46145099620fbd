"""What a server holds of a tree: against the oracle, through crashes, and by hand."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gossipkv.errors import ProtocolError
from gossipkv.register.metadata.holding import Holding, page_key
from gossipkv.register.metadata.pages import MissingPage, Outcome, name_of
from gossipkv.register.metadata.tree import Tree, pages_of
from tests.oracle.metadata_tree import Keeper
from tests.unit.register.metadata.maps import new_store, put_all

NUMBERS = st.integers(0, 1_000)


def applied(records, batch):
    """What the store has after a batch."""
    return {key: value for key, value in (records | batch.puts).items() if key not in batch.deletes}


class Machine(RuleBasedStateMachine):
    """A server and its store, of which what is synced outlives a crash, and of the rest the first few batches."""

    @initialize()
    def begin(self):
        """Nothing is held, and there are roots of a few maps, each made of one before."""
        self.world = new_store()  # All pages that there are anywhere.
        self.roots = []  # With the config ids for which they were made.
        self.keepers = [Keeper()]  # After each batch; the last one is what was appended.
        self.records = [{}]
        self.holding = Holding()
        self.synced = 0  # How many batches of this life are.
        self.make(0, 0, 9)

    @property
    def keeper(self):
        """What is kept as appended."""
        return self.keepers[-1]

    @rule(before=NUMBERS, seed=NUMBERS, number=st.integers(1, 9))
    def make(self, before, seed, number):
        """A coordinator somewhere makes a root of another one."""
        name, config = self.roots[before % len(self.roots)] if self.roots else (None, 0)
        puts = {b"%d" % ((seed + at) % 40): (b"%d" % seed * 8_000)[:8_000] for at in range(number)}
        outcomes = [(b"%020d" % seed, Outcome.DONE)] if seed % 2 else []
        root = self.world.take(put_all(self.world.open(name), config + 1, puts, outcomes))
        self.roots.append((root, config + 1))
        names = set(pages_of(root, self.world.pages[root]))
        for keeper in self.keepers:
            keeper.below[root] = names

    def append(self, batch, keeper):
        """Hear of a batch, and do in the model what it is for."""
        self.records.append(applied(self.records[-1], batch))
        self.keepers.append(keeper)

    def copied(self):
        """The model, to be changed."""
        return Keeper(dict(self.keeper.below), dict(self.keeper.pins), set(self.keeper.pages))

    @rule(at=NUMBERS, ahead=st.sampled_from([0, 0, 1, 5]), left_out=st.one_of(st.none(), NUMBERS))
    def pin(self, at, ahead, left_out):
        """Pin a root with the pages that are missing here, or with a part of them."""
        root, config = self.roots[at % len(self.roots)]
        names = sorted(self.keeper.below[root])
        missing = self.holding.missing(names)
        assert set(missing) == set(names) - self.keeper.pages
        given = {name: self.world.pages[name] for name in missing}
        if left_out is not None and given:
            given.pop(missing[left_out % len(missing)])
        if root not in given and root not in self.keeper.pins:
            with pytest.raises(MissingPage):
                self.holding.pin(root, config + ahead, given)
            return
        keeper = self.copied()
        keeper.pin(root, config + ahead, set(given))
        batch = self.holding.pin(root, config + ahead, given)
        assert not batch.deletes
        assert len(batch.puts) == 1 + len(given)
        self.append(batch, keeper)

    @rule(chosen=st.integers(0, 12), heads=st.sets(NUMBERS, max_size=3))
    def collect(self, chosen, heads):
        """Let go of what neither these heads nor a pin above the chosen sequence needs."""
        names = {self.roots[at % len(self.roots)][0] for at in heads}
        keeper = self.copied()
        keeper.collect(chosen, names)
        self.append(self.holding.collect(chosen, names), keeper)

    @rule(number=st.integers(1, 9))
    def sync(self, number):
        """A few batches are on the disk."""
        self.synced = min(self.synced + number, len(self.records) - 1)
        self.holding.synced(self.synced)

    @rule(more=st.integers(0, 5))
    def crash(self, more):
        """Start anew on what was synced, and on the first few batches that were not."""
        left = min(self.synced + more, len(self.records) - 1)
        self.records, self.keepers = [self.records[left]], [self.keepers[left]]
        self.holding = Holding(sorted(self.records[0].items()))
        self.synced = 0

    @invariant()
    def is_as_the_model(self):
        """Pins and pages are the oracle's, here and on the disk; what is held is synced, and stays in any crash."""
        assert self.holding.roots == self.keeper.pins
        stored = {key for key in self.records[-1] if len(key) == len(page_key(b"n" * 32)) and key[:1] == b"\1"}
        assert stored == {page_key(name) for name in self.keeper.pages}
        safe = self.records[self.synced]
        for root, _ in self.roots:
            needed = {page_key(name) for name in self.keeper.below[root]}
            is_synced = needed <= safe.keys() and b"\0" + root in safe
            still = root in self.keeper.pins and self.keeper.below[root] <= self.keeper.pages
            assert not self.holding.holds(root) or (is_synced and still)
            assert self.holding.holds(root) or self.synced < len(self.records) - 1 or not (is_synced and still)


def test_a_holding_is_the_oracle_s():
    """Pins, partial fetches, collections, syncs and crashes in any order."""
    run_state_machine_as_test(Machine, settings=settings(stateful_step_count=40))


def world():
    """Pages of three roots, each made of the one before."""
    store, roots = new_store(), []
    for config in range(1, 4):
        tree = store.open(roots[-1]) if roots else Tree.empty("any")
        roots.append(
            store.take(
                put_all(tree, config, {b"%02d" % at: bytes(8_000 + config) for at in range(20 if config == 1 else 1)})
            )
        )
    return store, roots


def pages(store, root):
    """All pages of a root."""
    return {name: store.pages[name] for name in pages_of(root, store.pages[root])}


def test_a_root_is_held_once_it_is_synced():
    """Not when it is appended; and no more when it is let go, synced or not."""
    store, (root, *_) = world()
    holding = Holding()
    batch = holding.pin(root, 1, pages(store, root))
    assert set(batch.puts) == {b"\0" + root, *map(page_key, pages(store, root))}
    assert not holding.holds(root)
    holding.synced(batch.serial)
    assert holding.holds(root)
    gone = holding.collect(1, [])
    assert set(gone.deletes) == batch.puts.keys()
    assert not holding.holds(root)
    assert holding.missing([root]) == [root]


def test_a_page_that_goes_while_another_transaction_counts_on_it():
    """It was said to be here, is collected, and the pin that comes without it does not hold its root."""
    store, (first, second, _) = world()
    holding = Holding()
    holding.synced(holding.pin(first, 1, pages(store, first)).serial)
    shared = set(pages(store, first)) & set(pages(store, second))
    assert shared
    missing = holding.missing(pages(store, second))
    assert not shared & set(missing)
    holding.collect(5, [])
    batch = holding.pin(second, 2, {name: store.pages[name] for name in missing})
    holding.synced(batch.serial)
    assert not holding.holds(second)
    assert set(holding.missing(pages(store, second))) == shared
    holding.synced(holding.pin(second, 2, {name: store.pages[name] for name in shared}).serial)
    assert holding.holds(second)


def test_nothing_goes_that_a_head_or_an_open_swap_names():
    """Pins above the chosen sequence stay, and the heads', whatever their sequence; a pin moves up, never down."""
    store, roots = world()
    holding = Holding()
    for config, root in enumerate(roots, 1):
        holding.pin(root, config, pages(store, root))
    holding.pin(roots[0], 9, {})
    holding.pin(roots[0], 3, {})
    assert holding.roots == {roots[0]: 9, roots[1]: 2, roots[2]: 3}
    assert holding.collect(3, [roots[1], b"n" * 32]).deletes
    assert holding.roots == {roots[0]: 9, roots[1]: 2}
    assert not holding.missing(pages(store, roots[0]) | pages(store, roots[1]))
    gone = holding.discard()
    assert set(gone.deletes) == {b"\0" + roots[0], b"\0" + roots[1]} | {
        page_key(name) for name in pages(store, roots[0]) | pages(store, roots[1])
    }
    assert holding.roots == {}


def test_what_is_not_the_root_s_is_refused():
    """Pages of another name than their own, or that it does not name, or no root; nothing is kept of them."""
    store, (first, _, third) = world()
    holding = Holding()
    leaf = next(name for name in pages(store, first) if name != first)
    for root, given in (
        (first, pages(store, first) | {leaf: b"other"}), (first, pages(store, first) | {third: store.pages[third]}),
        (leaf, {leaf: store.pages[leaf]}), (name_of(b"no page"), {name_of(b"no page"): b"no page"}),
    ):  # fmt: skip
        with pytest.raises(ProtocolError):
            holding.pin(root, 1, given)
    assert holding.roots == {}
    assert holding.missing([first, leaf]) == [first, leaf]


def test_a_start_that_finds_too_little_or_too_much():
    """A pin without its root is damage; a page that nobody names goes with the next collection."""
    store, (first, _, third) = world()
    batch = Holding().pin(first, 1, pages(store, first))
    with pytest.raises(MissingPage):
        Holding((key, value) for key, value in sorted(batch.puts.items()) if key != page_key(first))
    holding = Holding(sorted((batch.puts | {page_key(third): store.pages[third]}).items()))
    assert holding.holds(first)
    assert holding.collect(0, []).deletes == [page_key(third)]
    assert holding.collect(0, []).deletes == []
    again = Holding(sorted((batch.puts | {page_key(third): store.pages[third]}).items()))
    again.pin(third, 3, pages(store, third))
    assert again.collect(0, []).deletes == []
    assert not again.missing(pages(store, third))
