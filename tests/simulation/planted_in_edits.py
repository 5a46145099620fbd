"""Planted bugs: fragments of production code, or of a host, each with another that breaks one of the rules.

with planted("applyacc"):
    World(seed).run()  # Raises BrokenError for some seeds.
"""

from __future__ import annotations
import __future__

import importlib
import inspect
import sys
import textwrap
from contextlib import ExitStack, contextmanager
from itertools import groupby
from operator import itemgetter
from unittest.mock import patch

STATE = "gossipkv.register.state:RegisterMap."
SNAPSHOT = "gossipkv.register.snapshot:SnapshotReader."
PROPOSER = "gossipkv.register.proposer:Proposer."
HOST = "tests.world.edits.host:Host."
OPERATIONS = "tests.world.edits.operations:"

# By name: the place, the fragment that stands there once, and its replacement.
BUGS = {
    # An acceptor accepts a value whose map it does not have.
    "nohold": [(STATE + "holds", "bool(value.ended) or self.state_of(value) is not None", "True")],
    # It counts a map that it has in memory alone.
    "inmemory": [
        (
            STATE + "state_of",
            "base = self.base if self.base is not None else Base()",
            (
                "states, first = self._states.values(), value.tail[0].sequence if value.tail else 0;"
                "base = ([one for one in states if one.sequence == first - 1]"
                " or [self.base or Base()])[-1]"
            ),
        )
    ],
    # It takes what it accepts into its base.
    "applyacc": [(HOST + "_keep", "value.decided)", "value.sequence)")],
    # It answers before its record is synced.
    "nosync": [("gossipkv.register.acceptor:Acceptor._answer", "if appended is None:", "if True:")],
    # A proposer takes the value that its prepares find for decided.
    "decprep": [
        (STATE + "_decided", "return found.decided if", "return found.sequence if found else found.decided if")
    ],
    # The tail has the last transaction alone.
    "shorttail": [
        (STATE + "next_value", "if transaction.sequence >= first]", "if False]"),
        ("gossipkv.register.edits:decode_value", "if first > decided + 1 or", "if"),
    ],
    # After a failure an operation keeps its first judgement.
    "rejudge": [(HOST + "_judge", "= judge_all(", "= change.judged or judge_all(")],
    "noid": [(OPERATIONS + "_judge", "if kept is not None:", "if False:")],
    "nolife": [(OPERATIONS + "_judge", "if sequence > base + LIFE:", "if False:")],
    # Outcomes are kept for a shorter time than operations live.
    "short": [(OPERATIONS + "View.old_outcomes", "self.sequence - KEPT", "self.sequence - 1")],
    "nover": [(OPERATIONS + "_judge", "DONE if version <= base else CONFLICT", "DONE")],
    # The pages of a snapshot count without the history since the first one.
    "fuzzy": [
        (SNAPSHOT + "finish", "self._entries.update(transaction.edits)", "pass"),
        (SNAPSHOT + "finish", "if found != digest:", "if False:"),
    ],
    # A snapshot replaces a newer base.
    "lower": [
        (HOST + "on_rested", "not self.map.takes(base.place)", "False"),
        (STATE + "replace", "self.takes(base.place)", "True"),
    ],
    # One acceptor is enough for an outcome.
    "early": [(PROPOSER + "_accepted", "elif value.acceptors.is_quorum(accepted) and", "elif accepted or")],
    # A joint configuration is left by a proposer that has not seen it decided.
    "leave": [(PROPOSER + "_accept", "if self._committed == acceptors.joint:", "if True:")],
    # Acceptors change without a joint configuration.
    "direct": [
        (PROPOSER + "_accept", "acceptors.joint_with(members, draw_id(self._random))", "Acceptors.of(members)"),
        (PROPOSER + "_accept", "assert acceptors.follows(base.acceptors)", "assert True"),
    ],
    # A prepare counts the acceptors that were known when it began.
    "oldset": [
        (PROPOSER + "_start", "batch, ballot)", "batch, ballot, results=[self.acceptors])"),
        (PROPOSER + "_prepared", "phase.best[1].acceptors if", "phase.results[0] if"),
    ],
    # A force goes on with the accepted value, though a survivor's base is beyond it, or of another line.
    "basebelow": [(STATE + "highest", "accepted.generation and is_behind", "accepted.generation")],
    "bysequence": [
        (
            STATE + "highest",
            "(base.sequence <= value.sequence and self.holds(value))",
            "base.sequence <= value.sequence",
        )
    ],
    # A base of a lost generation is taken for the map of the newer one, by no news or by older news.
    "nodigest": [(HOST + "on_news", "(last.sequence, last.digest) == (theirs.sequence, theirs.digest)", "True")],
    "stalenews": [(STATE + "follow", "or not _fits(base, transactions)", "")],
    # Acceptors learn of a decision by the next acceptance alone.
    "nonotice": [(HOST + "_decided", "self.map.base is None or self.map.base.shown < ballot", "False")],
}


@contextmanager
def planted(name):
    """Plant a bug."""
    with ExitStack() as stack:
        for place, edits in groupby(BUGS[name], itemgetter(0)):
            module_name, _, names = place.partition(":")
            *owners, last = names.split(".")
            module = importlib.import_module(module_name)
            owner = getattr(module, owners[0]) if owners else module
            former = getattr(owner, last)
            changed = _changed(former, [*edits])
            users = [] if owners else [user for user in sys.modules.values() if getattr(user, last, None) is former]
            for user in {owner, *users}:
                stack.enter_context(patch.object(user, last, changed))
        yield


def _changed(function, edits):
    """Return a function made of the text of another, with these edits."""
    plain = inspect.unwrap(function)
    text = textwrap.dedent(inspect.getsource(plain))
    for place, fragment, instead in edits:
        assert text.count(fragment) == 1, f"{fragment!r} stands {text.count(fragment)} times in {place}"
        text = text.replace(fragment, instead)
    names = {}
    code = compile(text, plain.__code__.co_filename, "exec", flags=__future__.annotations.compiler_flag)
    exec(code, plain.__globals__, names)
    return names[plain.__name__]
