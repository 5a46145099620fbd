"""Trees on pages match the oracle through random operations."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gossipkv.register.metadata.operations import ask, judge
from gossipkv.register.metadata.pages import MAX_PAGE_BYTES, OperationOutcome, config_id, generation_of, sequence_of
from gossipkv.register.metadata.tree import check_all, check_change, pages_of
from tests.oracle.metadata_tree import KEPT, Model, Wanted
from tests.unit.register.metadata.maps import ANY, FUNCTIONS, new_store, operation

KEYS = st.one_of(st.sampled_from([b"", b"\0", b"\xff" * 255]), st.integers(0, 60).map(b"%02d".__mod__))
RECORDS = st.one_of(st.none(), st.sampled_from([0, 1, 3_000, 5_000, 8_190]))
AGES = st.one_of(st.integers(-1, 3), st.sampled_from([10, 62, 63, 64, 65, 200]))
JUMPS = st.one_of(st.just(1), st.sampled_from([2, 30, 63, 64, 1_000, KEPT - 1, KEPT, KEPT + 1]))
OPERATIONS = st.tuples(
    st.integers(0, 400), AGES, st.dictionaries(KEYS, RECORDS, max_size=12), st.lists(KEYS, max_size=2),
    st.sampled_from([False] * 9 + [True]), st.sampled_from([False] * 5 + [True]), st.booleans(),
)  # fmt: skip


class Machine(RuleBasedStateMachine):
    """One map, judged by the tree and by the model; its head moves, also without changes."""

    def __init__(self):
        super().__init__()
        self.model = Model()
        self.store = new_store()
        self.root = None
        self.head = 0
        self.asked = {}  # Bases of operations, by id.
        self.wants = {}  # The first operation under each id.
        self.stamp = 0

    def names(self, root):
        return () if root is None else pages_of(self.store.read, root)

    def record(self, size):
        self.stamp += 1
        return None if size is None else (b"%d " % self.stamp * size)[:size]

    def wanted(self, told):
        """Return an operation: a number fixes id and base, but may stand for another operation."""
        number, age, puts, looks, touches_all, refuses, is_again = told
        base = self.asked.setdefault(number, max(0, self.head - age))
        made = {key: self.record(size) for key, size in puts.items()}
        wanted = Wanted(b"%020d" % number, base, made, looks, touches_all=touches_all, refuses=refuses)
        return self.wants.setdefault(number, wanted) if is_again else wanted

    @rule(told=st.lists(OPERATIONS, min_size=1, max_size=10), jump=JUMPS, forced=st.sampled_from([0] * 19 + [1]))
    def transact(self, told, jump, forced):
        """Judge a few operations, and check the result as a server with the previous root."""
        wanted = [self.wanted(one) for one in told]
        config = config_id(generation_of(self.head) + forced, sequence_of(self.head) + jump)
        tree = self.store.open(self.root)
        judgement = judge(tree, [operation(one) for one in wanted], config, FUNCTIONS)
        answers = self.model.judge(wanted, config)
        for answer, allowed in zip(judgement.answers, answers, strict=True):
            assert answer.outcome.name in allowed
        again = judge(self.store.open(self.root), [operation(one) for one in wanted], config, FUNCTIONS)
        assert again.changed == judgement.changed
        if judgement.changed is None:
            return
        assert not judgement.changed.pages.keys() & set(
            self.names(self.root)
        )  # An older root may have had the same leaf.
        check_change(self.store.read, ANY, self.root, judgement.changed, config)
        self.root, self.head = self.store.take(judgement.changed), config

    @rule(number=st.integers(0, 400), jump=st.sampled_from([0, 0, 1, 64, KEPT]))
    def ask(self, number, jump):
        """Ask for an outcome, at this head or at a later one with the same map."""
        base, name = self.asked.get(number, max(0, self.head - number)), b"%020d" % number
        head = self.head + jump
        assert ask(self.store.open(self.root), name, base, head).name in self.model.ask(name, base, head)

    @invariant()
    def is_as_the_model(self):
        """Check entries, versions and sizes; pages are a quarter to a whole page large."""
        tree = self.store.open(self.root)
        found = {entry.key: (entry.version, entry.record) for entry in tree.scan()}
        assert found == self.model.entries
        assert list(found) == sorted(found)
        assert len(tree) == len(found)
        assert (tree.root.version, tree.root.config) == (self.model.version, self.model.config)
        assert sum(leaf.entries for leaf in tree.leaves) == len(found)
        if self.root is not None:
            check_all(self.store.read, ANY, self.root)
            names = self.names(self.root)
            assert all(len(self.store.pages[name]) <= MAX_PAGE_BYTES for name in names)

    @rule(key=KEYS, end=st.one_of(st.none(), KEYS))
    def read(self, key, end):
        tree = self.store.open(self.root)
        entry = tree.get(key)
        assert (None if entry is None else (entry.version, entry.record)) == self.model.entries.get(key)
        within = sorted(one for one in self.model.entries if one >= key and (end is None or one < end))
        assert [one.key for one in tree.scan(key, end)] == within
        edit = tree.edit(self.head + 1)
        assert edit.next_key(key) == min((one for one in self.model.entries if one > key), default=None)


def test_a_map_on_pages_is_the_oracle_s():
    """Equal edits of random transactions give equal bytes and pass the check."""
    run_state_machine_as_test(Machine, settings=settings(stateful_step_count=25))


def test_the_machine_sees_each_outcome():
    """The model meets all four outcomes, so the comparison above is not empty."""
    model = Model()
    one = Wanted(b"1" * 20, 0, {b"k": b"v"}, [])
    two = Wanted(b"2" * 20, 0, {b"k": b"w"}, [])
    three = Wanted(b"3" * 20, 0, {}, [], refuses=True)
    four = Wanted(b"4" * 20, 1, {}, [])
    other = Wanted(b"1" * 20, 0, {b"l": b"v"}, [])
    told = model.judge([one, two, three, four, one, other], 1)
    assert told == [{"DONE"}, {"CONFLICT"}, {"REFUSED"}, {"UNKNOWN"}, {"DONE"}, {"REFUSED"}]
    assert {outcome.name for outcome in OperationOutcome} == {"DONE", "CONFLICT", "REFUSED", "UNKNOWN"}
