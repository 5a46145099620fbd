"""A ledger's pins and pages match the oracle, also through crashes."""

from __future__ import annotations

import contextlib
import types

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gossipkv.errors import ProtocolError
from gossipkv.register.metadata.ledger import RegisterLedger
from gossipkv.register.metadata.pages import MissingPage, OperationOutcome, name_of
from gossipkv.register.metadata.tree import MapTree, pages_of
from tests.oracle.metadata_tree import Keeper
from tests.unit.register.metadata.maps import ANY, new_store, put_all

REGISTER = b"r" * 16
NUMBERS = st.integers(0, 1_000)


def pin_key(root):
    return b"m" + REGISTER + b"\0" + root


def page_key(name):
    return b"m" + REGISTER + b"\1" + name


class Space:
    """The store's contents after each batch; the test decides when a batch is synced."""

    def __init__(self, records=()):
        self.after = [dict(records)]
        self.told = []  # The callback of each batch for its sync.
        self.synced = 0

    def get(self, key):
        return self.after[self.synced].get(key)

    def check_free(self):
        """Do nothing: there is always room."""

    async def write(self, records, on_synced):
        """Append a batch and leave the caller waiting."""
        self.after.append({key: value for key, value in (self.after[-1] | records).items() if value is not None})
        self.told.append(on_synced)
        await wait()

    def sync(self, number=1):
        for told in self.told[self.synced : self.synced + number]:
            self.synced += 1
            told()

    @property
    def last(self):
        """Return the keys that the last batch put, and those that it deleted."""
        before, after = self.after[-2:]
        return after.keys() - before.keys(), before.keys() - after.keys()


@types.coroutine
def wait():
    yield


def begin(coroutine):
    """Run the coroutine up to its wait for the disk."""
    with contextlib.suppress(StopIteration):
        coroutine.send(None)


def ledger_of(space):
    start = len(pin_key(b"")) - 1
    records = [(key[start:], value) for key, value in sorted(space.after[0].items())]
    return RegisterLedger(REGISTER, ANY, space, None, beside=None, records=records)


def pins(ledger):
    """Return the pinned roots with their config ids."""
    return {root: pin.config for root, pin in ledger._pins.items()}


def missing(ledger, names):
    """Return the names of missing pages."""
    return [name for name in names if name not in ledger._here]


class Machine(RuleBasedStateMachine):
    """A server with a store; a crash keeps all synced batches and some of the next ones."""

    @initialize()
    def begin(self):
        """Start with an empty ledger and roots of a few maps, each made from an earlier one."""
        self.world = new_store()  # All pages that exist anywhere.
        self.roots = []  # Roots with their config ids.
        self.keepers = [Keeper()]  # The oracle after each batch; the last one is the appended state.
        self.space = Space()
        self.ledger = ledger_of(self.space)
        self.make(0, 0, 9)

    @property
    def keeper(self):
        return self.keepers[-1]

    @rule(before=NUMBERS, seed=NUMBERS, number=st.integers(1, 9))
    def make(self, before, seed, number):
        """Make a root from another one, as a coordinator elsewhere."""
        name, config = self.roots[before % len(self.roots)] if self.roots else (None, 0)
        puts = {b"%d" % ((seed + at) % 40): (b"%d" % seed * 5_000)[:5_000] for at in range(number)}
        outcomes = [(b"%020d" % seed, OperationOutcome.DONE)] if seed % 2 else []
        root = self.world.take(put_all(self.world.open(name), config + 1, puts, outcomes))
        self.roots.append((root, config + 1))
        names = set(pages_of(self.world.read, root))
        for keeper in self.keepers:
            keeper.below[root] = names

    def copied(self):
        return Keeper(dict(self.keeper.below), dict(self.keeper.pins), set(self.keeper.pages))

    @rule(at=NUMBERS, ahead=st.sampled_from([0, 0, 1, 5]), left_out=st.one_of(st.none(), NUMBERS))
    def pin(self, at, ahead, left_out):
        """Pin a root with all or some of the missing pages."""
        root, config = self.roots[at % len(self.roots)]
        names = sorted(self.keeper.below[root])
        absent = missing(self.ledger, names)
        assert set(absent) == set(names) - self.keeper.pages
        given = {name: self.world.pages[name] for name in absent}
        if left_out is not None and given:
            given.pop(absent[left_out % len(absent)])
        if root not in given and root not in self.keeper.pins:
            with pytest.raises(MissingPage):
                begin(self.ledger.pin(root, config + ahead, given))
            return
        self.keepers.append(self.copied())
        self.keeper.pin(root, config + ahead, set(given))
        begin(self.ledger.pin(root, config + ahead, given))
        assert self.space.last[0] >= {page_key(name) for name in given}
        assert not self.space.last[1]

    @rule(chosen=st.integers(0, 12), heads=st.sets(NUMBERS, max_size=3))
    def collect(self, chosen, heads):
        """Release roots that neither these heads nor a pin above the chosen sequence needs."""
        names = {self.roots[at % len(self.roots)][0] for at in heads}
        keeper = self.copied()
        keeper.collect(chosen, names)
        begin(self.ledger.collect(chosen, names))
        if keeper.pins != self.keeper.pins:
            self.keepers.append(keeper)

    @rule(number=st.integers(1, 9))
    def sync(self, number):
        self.space.sync(number)

    @rule(more=st.integers(0, 5))
    def crash(self, more):
        """Restart from the synced batches and the first few unsynced ones."""
        left = min(self.space.synced + more, len(self.keepers) - 1)
        self.keepers = [self.keepers[left]]
        self.space = Space(self.space.after[left])
        self.ledger = ledger_of(self.space)

    @invariant()
    def is_as_the_model(self):
        """Check pins and pages in memory and on disk against the oracle; a held root survives any crash."""
        assert len(self.space.after) == len(self.keepers)
        assert pins(self.ledger) == self.keeper.pins
        stored = {*map(pin_key, self.keeper.pins), *map(page_key, self.keeper.pages)}
        assert self.space.after[-1].keys() == stored
        safe = self.space.after[self.space.synced]
        for root, _ in self.roots:
            needed = {page_key(name) for name in self.keeper.below[root]}
            is_synced = needed <= safe.keys() and pin_key(root) in safe
            still = root in self.keeper.pins and self.keeper.below[root] <= self.keeper.pages
            assert not self.ledger.holds(root) or (is_synced and still)
            is_all_synced = self.space.synced == len(self.keepers) - 1
            assert self.ledger.holds(root) or not is_all_synced or not (is_synced and still)


def test_a_ledger_is_the_oracle_s():
    """Pins, partial fetches, collections, syncs and crashes come in any order."""
    run_state_machine_as_test(Machine, settings=settings(stateful_step_count=40))


def world():
    """Return pages of three roots, each made from the one before, and an empty ledger."""
    store, roots = new_store(), []
    for config in range(1, 4):
        tree = store.open(roots[-1]) if roots else MapTree.empty("any")
        puts = {b"%02d" % at: bytes(8_000 + config) for at in range(20 if config == 1 else 1)}
        roots.append(store.take(put_all(tree, config, puts)))
    space = Space()
    return store, roots, space, ledger_of(space)


def pages(store, root):
    return {name: store.pages[name] for name in pages_of(store.read, root)}


def test_a_root_is_held_once_it_is_synced():
    """An appended root is not held yet, and a released one no more."""
    store, (root, *_), space, ledger = world()
    begin(ledger.pin(root, 1, pages(store, root)))
    assert space.last == ({pin_key(root), *map(page_key, pages(store, root))}, set())
    assert not ledger.holds(root)
    space.sync()
    assert ledger.holds(root)
    begin(ledger.collect(1, []))
    assert space.after[-1] == {}
    assert not ledger.holds(root)
    assert missing(ledger, [root]) == [root]


def test_a_page_that_comes_again_is_not_held_by_its_first_sync():
    """The page is written, removed and written again before any sync: only the last write counts."""
    store, (root, *_), space, ledger = world()
    for _ in range(2):
        begin(ledger.pin(root, 1, pages(store, root)))
        begin(ledger.discard())
    begin(ledger.pin(root, 1, pages(store, root)))
    for _ in range(4):
        space.sync()
        assert not ledger.holds(root)
    space.sync()
    assert ledger.holds(root)


def test_a_page_that_goes_while_another_transaction_counts_on_it():
    """The page was present and is collected, so the pin that came without it does not hold its root."""
    store, (first, second, _), space, ledger = world()
    begin(ledger.pin(first, 1, pages(store, first)))
    shared = set(pages(store, first)) & set(pages(store, second))
    assert shared
    absent = missing(ledger, pages(store, second))
    assert not shared & set(absent)
    begin(ledger.collect(5, []))
    begin(ledger.pin(second, 2, {name: store.pages[name] for name in absent}))
    space.sync(3)
    assert not ledger.holds(second)
    assert set(missing(ledger, pages(store, second))) == shared
    begin(ledger.pin(second, 2, {name: store.pages[name] for name in shared}))
    space.sync()
    assert ledger.holds(second)


def test_nothing_goes_that_a_head_or_an_open_swap_names():
    """Pins above the chosen sequence stay, as do all heads; a pin moves only up."""
    store, roots, space, ledger = world()
    for config, root in enumerate(roots, 1):
        begin(ledger.pin(root, config, pages(store, root)))
    begin(ledger.pin(roots[0], 9, {}))
    begin(ledger.pin(roots[0], 3, {}))
    assert pins(ledger) == {roots[0]: 9, roots[1]: 2, roots[2]: 3}
    begin(ledger.collect(3, [roots[1], b"n" * 32]))
    assert pins(ledger) == {roots[0]: 9, roots[1]: 2}
    assert not missing(ledger, pages(store, roots[0]) | pages(store, roots[1]))
    begin(ledger.discard())
    assert space.after[-1] == {}
    assert pins(ledger) == {}


def test_what_is_not_the_root_s_is_refused():
    """Pages under wrong names, foreign pages and non-roots are refused, and nothing of them is kept."""
    store, (first, _, third), _, ledger = world()
    leaf = next(name for name in pages(store, first) if name != first)
    for root, given in (
        (first, pages(store, first) | {leaf: b"other"}), (first, pages(store, first) | {third: store.pages[third]}),
        (leaf, {leaf: store.pages[leaf]}), (name_of(b"no page"), {name_of(b"no page"): b"no page"}),
    ):  # fmt: skip
        with pytest.raises(ProtocolError):
            begin(ledger.pin(root, 1, given))
    assert pins(ledger) == {}
    assert missing(ledger, [first, leaf]) == [first, leaf]


def test_a_start_that_finds_too_little_or_too_much():
    """A pin without its root is damage; a page without a pin is ignored."""
    store, (first, _, third), space, ledger = world()
    begin(ledger.pin(first, 1, pages(store, first)))
    kept = space.after[-1]
    with pytest.raises(MissingPage):
        ledger_of(Space({key: value for key, value in kept.items() if key != page_key(first)}))
    again = Space(kept | {page_key(third): store.pages[third]})
    ledger = ledger_of(again)
    assert ledger.holds(first)
    begin(ledger.pin(third, 3, pages(store, third)))
    assert not ledger.holds(third)
    again.sync()
    assert ledger.holds(third)


def tall():
    """Return the pages of a map with branches, and its root."""
    store = new_store()
    root = store.take(put_all(MapTree.empty("any"), 1, {b"%04d" % at: bytes(40) for at in range(3_000)}))
    return store, root


def run(coroutine):
    """Run a coroutine through all its waits for the disk."""
    with contextlib.suppress(StopIteration):
        while True:
            coroutine.send(None)


def test_a_crash_between_batches_leaves_no_page_that_no_root_names(monkeypatch):
    """Each stored page of a map in several batches is found from its root, and goes with its pin."""
    monkeypatch.setattr("gossipkv.register.metadata.ledger.MAX_BATCH_BYTES", 9_000)
    store, root = tall()
    space = Space()
    with pytest.raises(MissingPage):  # Nothing was synced meanwhile.
        run(ledger_of(space).pin(root, 1, pages(store, root)))
    assert len(space.after) > 9
    for records in space.after[1:]:
        after = Space(records)
        ledger = ledger_of(after)
        assert {page_key(name) for name in ledger._here} == records.keys() - {pin_key(root)}
        assert ledger.has(root) == (records == space.after[-1])
        begin(ledger.discard())
        assert after.after[-1] == {}


def test_the_pages_below_a_missing_branch_come_later():
    """A pin without a branch is no map; the branch and its leaves complete it."""
    store, root = tall()
    branch = store.open(root).root.below[1]
    late = {branch.name, *(leaf.name for leaf in store.open(root).branch(branch))}
    space = Space()
    ledger = ledger_of(space)
    first = {name: page for name, page in pages(store, root).items() if name not in late}
    begin(ledger.pin(root, 1, first))
    assert missing(ledger, late) == [*late]
    with pytest.raises(ProtocolError, match="is not named by root"):
        begin(ledger.pin(root, 1, {name: store.pages[name] for name in late - {branch.name}}))
    begin(ledger.pin(root, 1, {name: store.pages[name] for name in late}))
    assert ledger.has(root)
    space.sync(2)
    assert ledger.holds(root)
    begin(ledger.collect(1, []))
    assert space.after[-1] == {}
