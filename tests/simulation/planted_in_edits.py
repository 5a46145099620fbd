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
ACCEPTOR = "gossipkv.register.acceptor:"
PROPOSER = "gossipkv.register.proposer:Proposer."
SEEN = "gossipkv.register.seen:SeenPositions."
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
    # It does not compare the digest of a transaction with the map.
    "baddigest": [
        (
            STATE + "_after",
            "base.after(transaction.edits)",
            "base.after(transaction.edits)._replace(digest=transaction.digest)",
        )
    ],
    # It writes a snapshot over the base before.
    "inplace": [(STATE + "replace", "self._slot = 1 - self._slot", "pass")],
    # It gives transactions without the first one.
    "since": [(STATE + "since", "[len(self._history) - count :]", "[len(self._history) - count :][1:]")],
    # It takes what it accepts into its base.
    "applyacc": [(HOST + "_keep", "value.decided)", "value.sequence)")],
    # It answers before its record is synced.
    "nosync": [(ACCEPTOR + "Acceptor._answer", "if appended is None:", "if True:")],
    # It accepts below its promise.
    "nopromise": [
        (
            ACCEPTOR + "_judge_accept",
            "if ballot < record.promise or (record.accepted is not None and ballot <= record.accepted):",
            "if record.accepted is not None and ballot <= record.accepted:",
        ),
        (
            ACCEPTOR + "_judge_accept",
            "ballot.next() if request.stays else ballot, ballot, value",
            "max(ballot, record.promise), ballot, value",
        ),
    ],
    # Another store, lost or put back, answers for the one before.
    "oldid": [
        (ACCEPTOR + "Acceptor.receive", "if request.to != self.me:", "if False:"),
        (ACCEPTOR + "Acceptor.receive", "Reply(verdict, register, self.me,", "Reply(verdict, register, request.to,"),
        (SEEN + "is_counted", "return False\n    seen, now", "return True\n    seen, now"),
    ],
    # An older copy of a store goes on, or is taken for one that has lost what was not synced.
    "behind": [(SEEN + "_check", "if self.behind or self.has_been(position):", "if True:")],
    "samedraw": [(HOST + "__init__", "self.me, world.random.getrandbits(64))", "self.me)")],
    "unsyncedseen": [
        (
            SEEN + "tell",
            "rows.append([*self.me, *self._now])",
            "rows.append([*self.me, *self._now[:2], self._appended])",
        )
    ],
    "notkept": [(SEEN + "records", "for acceptor in self._changed:", "for acceptor in ():")],
    "uncounted": [(SEEN + "is_counted", "if opening != now and batches >", "if False and batches >")],
    "nonews": [(SEEN + "_see", "return opening != speaks and (not before or opening < speaks)", "return False")],
    # One acceptor is a quorum.
    "quorum": [
        ("gossipkv.register.configuration:Acceptors.is_quorum", "if 2 * count <= len(members):", "if not count:")
    ],
    # A ballot is used twice, by a proposer or by all.
    "reuse": [
        (
            PROPOSER + "_propose",
            "(self._top.counter, self._heard.counter) + outbid",
            "(self._top.counter + 1, self._heard.counter)",
        )
    ],
    "sameid": [("gossipkv.register.ballot:draw_id", "random.getrandbits(64) or 1", "7")],
    # A change that may be done is refused.
    "refuse": [(PROPOSER + "_refuse", "ChangeEnd.UNKNOWN if pending.sent else ChangeEnd.REFUSED", "ChangeEnd.REFUSED")],
    # A read shows what one acceptor has.
    "stale": [
        (PROPOSER + "_quorum_read", "if is_plain and value.acceptors.is_quorum(agreed):", "if is_plain and agreed:")
    ],
    # A proposer goes on in a lost generation.
    "nogeneration": [
        (
            PROPOSER + "_is_deposed",
            "self._heard.generation > ballot.generation or 0 < ballot.generation <= self._conflict",
            "False",
        )
    ],
    # It does not try again after a failure.
    "notagain": [(PROPOSER + "_fail", "self._not_before_ms = now_ms + 1", "self._not_before_ms = now_ms + (1 << 40)")],
    # Two forces of one generation go on.
    "twoforces": [
        ("gossipkv.register.ballot:are_conflicting", "ballot.generation == other.generation and", "False and")
    ],
    # A force goes on with a map that has ended.
    "endforce": [(STATE + "highest", 'b"ended" if base.ended else b""', 'b""')],
    # The end of a map needs the map.
    "noend": [(STATE + "decide", "if value.ended and upto == value.sequence:", "if False:")],
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
