"""A map as one register holds it, changed by judgements; and a function that follows its argument."""

from __future__ import annotations

from gossipkv.register.edits import decode_value
from gossipkv.register.metadata.known import MapView, config_id, generation_of, sequence_of
from gossipkv.register.metadata.operations import Edits, Operation, OperationRefusal, judge
from gossipkv.register.state import Base, first_value
from tests.oracle.metadata_map import Wanted


def say(view, argument):
    """Follow the argument: puts, keys to look at, a claim to touch all, a refusal."""
    puts, looks, touches_all, refuses = argument
    for key in looks:
        view.get(key)
    if refuses:
        raise OperationRefusal("NO", "as it was told")
    return Edits(dict(puts), None, touches_all)


FUNCTIONS = {("say", 1): say}


class HeldMap:
    """A map, and the config id of its last transaction."""

    def __init__(self, functions=FUNCTIONS, edits=(), config=0):
        self.functions, self.config = functions, config
        self.base = Base().after(edits)
        self.asked = 0
        self.words = ""  # The message of the last answer.

    @property
    def view(self):
        return MapView(self.base.entries, self.config)

    @property
    def keys(self):
        return [entry.key for entry in self.view.scan()]

    def judge(self, *operations, config=None):
        """Apply the judgement of operations by the transaction of that config id, the next one by default."""
        config = self.config + 1 if config is None else config
        self.config = config_id(generation_of(config), self.sequence)  # The round of a force found it so.
        judgement = judge(self.view, self.base.size_bytes, operations, config, self.functions)
        if judgement.edits:
            decode_value(first_value(judgement.edits).encode())  # The keys of a transaction ascend.
            self.base, self.config = self.base.after(judgement.edits), config
        return judgement

    def codes(self, *operations, config=None):
        """Judge operations; return for each its code, or else its outcome."""
        answers = self.judge(*operations, config=config).answers
        self.words = answers[-1].message if answers else ""
        return [answer.code or answer.outcome.name for answer in answers]

    def ask(self, name, *argument, version=1, base=None):
        """Judge one operation, based on the last transaction or on `base`; return its code or outcome."""
        (code,) = self.codes(self.operation(name, *argument, version=version, base=base))
        return code

    def operation(self, name, *argument, version=1, base=None):
        self.asked += 1
        return Operation(b"%020d" % self.asked, self.config if base is None else base, name, version, argument)

    def put(self, puts, config=None):
        """Judge an operation that makes these puts."""
        self.asked += 1
        config = self.config + 1 if config is None else config
        assert self.codes(wanted(1_000_000 + self.asked, config - 1, puts), config=config) == ["DONE"]

    @property
    def judged(self):
        """The sequences whose outcomes are kept."""
        return [sequence for sequence, _ in self.view.outcomes()]

    @property
    def sequence(self):
        return sequence_of(self.config)


def operation(one):
    """Return the operation of `say` for an operation of the model."""
    argument = (tuple(one.puts.items()), tuple(one.looks), one.touches_all, one.refuses)
    return Operation(one.id, one.base, "say", 1, argument)


def wanted(number=1, base=0, puts=None, looks=(), *, touches_all=False, refuses=False):
    """Return an operation of `say`; the number is its id."""
    return operation(Wanted(b"%020d" % number, base, puts or {}, [*looks], touches_all, refuses))
