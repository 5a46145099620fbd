"""Bugs planted in the register: in what acceptors promise and keep, in rounds, in changes of acceptors, in forces."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant

REGISTER = "gossipkv.register"
TESTS = "tests/unit/register"
TESTS_AT_NIGHT = "tests/nightly/unit/register"
ORACLE = f"{TESTS}/test_acceptor.py"
PROPOSER_TESTS = f"{TESTS}/test_proposer.py"
SETS_TESTS = f"{TESTS}/test_changes_of_acceptors.py"
FORCE_TESTS = f"{TESTS}/test_force.py"

ACCEPTOR = f"{REGISTER}.acceptor"
PROPOSER = f"{REGISTER}.proposer:Proposer"
FORCE = f"{REGISTER}.force:Force"

JUDGE_ACCEPT = f"{ACCEPTOR}:_judge_accept"
BEHIND = "if ballot < record.promise or (record.accepted is not None and ballot <= record.accepted):"
ACCEPTED = "return Verdict.OK, Record(ballot.next() if request.stays else ballot, ballot, value, record.conflict)"
AGAIN = "return (Verdict.OK if value == record.value else Verdict.IMPLAUSIBLE), record"
GOES_ON = "assert before is None or _goes_on(before, after), (before, after)"
FOLLOWS = "assert acceptors.follows(base.acceptors), (base.acceptors, acceptors)"
PROMISED = "has_quorum = acceptors.is_quorum(phase.answered.keys())"
SAME_LINE = "if phase.best is not None and has_quorum and phase.best[0][:2] == phase.ballot[:2]:"
PLAIN = "is_plain = not value.acceptors.joint and not self._is_deposed(ballot)"
COMMITTED = "elif base.acceptors.is_quorum(accepted) and value.acceptors.is_quorum(accepted):"
CACHED = "if cache is None or not cache.value.acceptors.is_quorum(cache.promised) or cache.ballot < self._heard:"
MINE = "if self._committed == acceptors.joint:"
STALE = "if phase is None or number != phase.number or acceptor not in phase.unheard:"
ENTERED = "gossipkv.register.proposer:_members_wanted"
ENTERS = "if not isinstance(want, Reconfigure) or acceptors.joint or want.members == acceptors.new:"
WAITING = "waiting = [pending for pending in phase.batch if not pending.over]"
INVITED = "self._invite(phase, now_ms)"
TOLD_EARLY = """found, highest = phase.base, phase.best[0]
            for pending in phase.batch:
                said = None if isinstance(pending.want, Reconfigure) else self._apply(pending.want, found, 0)
                if PRECONDITION:
                    end = End.REFUSED if isinstance(said, Refused) else End.DONE
                    self._tell(pending, Outcome(pending.ticket, end, b"", "", "", found, highest))
            self._invite(phase, now_ms)"""
FORGETS = """found = None if data is None else decode_record(data)
        if found is not None and found.value is not None and self.me not in found.value.acceptors.everyone:
            return None
        return found"""


def world(name: str) -> str:
    """Return the runs of one sort of small world."""
    return f"{TESTS_AT_NIGHT}/test_small_world.py::test_nothing_that_was_told_is_untrue[{name}]"


SAME = world("the same acceptors")
OTHERS = world("others now and then")
CHANGING = world("others all the time")
LOSSY = world("a bad net")
DISKS = world("disks are lost and put back")
FORCES = world("forces")


def planted(name: str, aims: str | tuple[str, ...], *edits: tuple[str, str, str]) -> Mutant:
    """Return a mutant that one of these runs or tests must see."""
    return Mutant(name, tuple(Edit(*edit) for edit in edits), (aims,) if isinstance(aims, str) else aims, "property")


OF_ACCEPTORS = (
    planted(
        "a quorum of one",
        SAME,
        (
            f"{REGISTER}.configuration:_is_majority",
            "return 2 * sum(member in of for member in members) > len(members)",
            "return any(member in of for member in members)",
        ),
    ),
    planted(
        "a promise is ignored",
        (SAME, LOSSY),
        (JUDGE_ACCEPT, BEHIND, "if record.accepted is not None and ballot <= record.accepted:"),
        (
            JUDGE_ACCEPT,
            ACCEPTED,
            ACCEPTED.replace("ballot.next() if request.stays else ballot", "max(ballot, record.promise)"),
        ),
    ),
    planted(
        "an acceptor judges by what is synced",
        (SAME, LOSSY),
        (f"{ACCEPTOR}:Acceptor.record", "if appended is not None:", "if False:"),
    ),
    planted(
        "a repeated accept lowers a promise",
        (SAME, LOSSY),
        (JUDGE_ACCEPT, AGAIN, "return Verdict.OK, Record(ballot, ballot, value, record.conflict)"),
        (f"{ACCEPTOR}:Acceptor.receive", GOES_ON, "pass"),
    ),
    planted(
        "an accept is compared with the promise only, and is none",
        ORACLE,
        (JUDGE_ACCEPT, BEHIND, "if ballot < record.promise:"),
        (JUDGE_ACCEPT, ACCEPTED, "return Verdict.OK, Record(record.promise, ballot, value, record.conflict)"),
    ),
    planted(
        "an acceptor answers before the sync",
        (SAME, LOSSY),
        (f"{ACCEPTOR}:Acceptor._answer", "if appended is None:", "if True:"),
    ),
    planted(
        "a disk that was lost or put back answers under the old id",
        DISKS,
        (f"{ACCEPTOR}:Acceptor.receive", "if request.to != self.me:", "if False:"),
        (
            f"{ACCEPTOR}:Acceptor.receive",
            "reply = Reply(verdict, register, self.me, request.number, request.ballot, told)",
            "reply = Reply(verdict, register, request.to, request.number, request.ballot, told)",
        ),
    ),
    planted(
        "an acceptor that was removed forgets",
        (CHANGING, OTHERS),
        (f"{ACCEPTOR}:Acceptor.record", "return None if data is None else decode_record(data)", FORGETS),
    ),
    planted(
        "an empty acceptor promises to anybody",
        ORACLE,
        (
            f"{ACCEPTOR}:_judge_without",
            "case Request(Kind.PREPARE, ballot=Ballot() as ballot, holding=bytes(payload)):",
            "case Request(Kind.PREPARE, ballot=Ballot() as ballot, holding=payload):",
        ),
    ),
    planted(
        "two forces are forgotten",
        (ORACLE, f"{FORCE_TESTS}::test_two_forces_at_once_on_the_same_survivors"),  # Others never come to rest.
        (
            f"{ACCEPTOR}:judge",
            "return Verdict.CONFLICTING, record._replace(conflict=ballot.generation)",
            "return Verdict.CONFLICTING, record",
        ),
    ),
    planted(
        "a made-up counter is believed",
        ORACLE,
        (
            f"{ACCEPTOR}:_judge_prepare",
            "if not ballot.is_plausible_after(record.promise):",
            "if False:",
        ),
    ),
)

OF_ROUNDS = (
    planted(
        "not applied is said of what is unknown",
        (LOSSY, SAME),
        (f"{PROPOSER}._give_up", "if pending.sent:", "if False:"),
        (f"{PROPOSER}._refuse", "end = End.UNKNOWN if pending.sent else End.REFUSED", "end = End.REFUSED"),
    ),
    planted(
        "what was refused is proposed",
        PROPOSER_TESTS,
        (
            f"{PROPOSER}._accept",
            "batch = [pending for pending in prepared.batch if not pending.over]  # The rest are refused.",
            "batch = prepared.batch",
        ),
    ),
    planted(
        "a ballot is used twice",
        (LOSSY, SAME),
        (
            f"{PROPOSER}._propose",
            "counter = min(max(self._top.counter, self._heard.counter) + outbid, MOST_COUNTER - 1)",
            "counter = min(max(self._top.counter + 1, self._heard.counter), MOST_COUNTER - 1)",
        ),
    ),
    planted(
        "a read ends after phase 1",
        PROPOSER_TESTS,
        (f"{PROPOSER}._prepared", INVITED, TOLD_EARLY.replace("PRECONDITION", "pending.want == READ")),
    ),
    planted(
        "a failed change ends after phase 1",
        PROPOSER_TESTS,
        (f"{PROPOSER}._prepared", INVITED, TOLD_EARLY.replace("PRECONDITION", "isinstance(said, Refused)")),
    ),
    planted(
        "stale and doubled replies count",
        (LOSSY, SAME),
        (f"{PROPOSER}._take", STALE, "if phase is None:"),
    ),
    planted(
        "a refusal of what was sent twice is told as one",
        PROPOSER_TESTS,
        (f"{PROPOSER}._end", "case Refused() if pending.sent == 1:", "case Refused() if pending.sent <= 2:"),
    ),
    planted(
        "a round that failed counts as sent",
        f"{PROPOSER_TESTS}::test_a_refusal_of_what_was_not_sent_before_is_one",
        (f"{PROPOSER}._fail", WAITING, f"{WAITING}\n        for pending in waiting:\n            pending.sent += 1"),
    ),
    planted(
        "what was sent once is refused where two forces meet",
        PROPOSER_TESTS,
        (
            f"{PROPOSER}._refuse",
            "end = End.UNKNOWN if pending.sent else End.REFUSED",
            "end = End.UNKNOWN if pending.sent > 1 else End.REFUSED",
        ),
    ),
    planted(
        "an id is kept after an implausible ballot",
        PROPOSER_TESTS,
        (
            f"{PROPOSER}.receive",
            "self._id = draw_id(self._random)  # Counters of this one may come again.",
            "pass",
        ),
    ),
    planted(
        "a counter that is implausible is not lowered",
        PROPOSER_TESTS,
        (
            f"{PROPOSER}.receive",
            "self._heard = max(self._top, promise._replace(counter=max(promise.counter, leap)))",
            "pass",
        ),
    ),
    planted(
        "a quorum read believes the first who answers",
        PROPOSER_TESTS,
        (
            f"{PROPOSER}._quorum_read",
            "if is_plain and value.acceptors.is_quorum(agreed):",
            "if is_plain and agreed:",
        ),
    ),
    planted(
        "what is cached outlives a failure",
        (LOSSY, SAME),
        (f"{PROPOSER}._propose", "cache, self._cache = self._cache, None", "cache = self._cache"),
        (f"{PROPOSER}._fail", "self._round = self._cache = None", "self._round = None"),
    ),
    planted(
        "a generation is ignored",
        FORCES,
        (
            f"{PROPOSER}._is_deposed",
            "return self._heard.generation > ballot.generation or 0 < ballot.generation <= self._conflict",
            "return False",
        ),
    ),
    planted(
        "a round builds on a value of another generation",
        f"{FORCE_TESTS}::test_a_round_builds_on_a_value_of_its_own_generation",
        (f"{PROPOSER}._prepared", SAME_LINE, "if phase.best is not None and has_quorum:"),
    ),
    planted(
        "what is cached outlives its generation",
        f"{FORCE_TESTS}::test_what_is_cached_ends_with_its_generation",
        (f"{PROPOSER}._propose", CACHED, CACHED.replace(" or cache.ballot < self._heard", "")),
    ),
    planted(
        "a round under way goes on in its generation",
        (PROPOSER_TESTS, FORCES),
        (f"{PROPOSER}._take", "if phase.ballot is not None and self._is_deposed(phase.ballot):", "if False:"),
    ),
)

OF_CHANGES = (
    planted(
        "phase 1 on the set first guessed",
        SETS_TESTS,
        (f"{PROPOSER}._see", "self._ask(phase, value.acceptors.everyone)", "pass"),
        (
            f"{PROPOSER}._prepared",
            "acceptors = phase.best[1].acceptors if phase.best is not None else self.known",
            "acceptors = Acceptors.of(phase.asked) if phase.asked else self.known",
        ),
    ),
    planted(
        "phase 1 on the new half alone",
        SETS_TESTS,
        (
            f"{PROPOSER}._prepared",
            PROMISED,
            PROMISED.replace("acceptors.is", "Acceptors(acceptors.new, acceptors.new).is"),
        ),
    ),
    planted(
        "phase 2 without a quorum of what is written",
        SETS_TESTS,
        (f"{PROPOSER}._accepted", COMMITTED, "elif base.acceptors.is_quorum(accepted):"),
    ),
    planted(
        "phase 2 without a quorum of what is changed",
        SETS_TESTS,
        (f"{PROPOSER}._accepted", COMMITTED, "elif value.acceptors.is_quorum(accepted):"),
    ),
    planted(
        "cached promises count across a joint configuration",
        SETS_TESTS,
        (f"{PROPOSER}._accepted", COMMITTED, "elif base.acceptors.is_quorum(accepted):"),
        (
            f"{PROPOSER}._propose",
            CACHED,
            CACHED.replace("not cache.value.acceptors.is_quorum(cache.promised)", "False"),
        ),
    ),
    planted("a joint configuration is left at once", SETS_TESTS, (f"{PROPOSER}._accept", MINE, "if True:")),
    planted(
        "a read leaves a joint configuration as it is",
        f"{SETS_TESTS}::test_a_read_ends_a_joint_configuration",
        (f"{PROPOSER}._quorum_read", PLAIN, "is_plain = not self._is_deposed(ballot)"),
    ),
    planted(
        "a joint configuration begins in another",
        SETS_TESTS,
        (
            ENTERED,
            ENTERS,
            ENTERS.replace("acceptors.joint or want.members ==", "want.members in").replace(".new", "[:2]"),
        ),
        (f"{PROPOSER}._accept", "if acceptors.joint:", "if acceptors.joint and members is None:"),
        (
            f"{PROPOSER}._accept",
            "acceptors = acceptors.joint_with(members, draw_id(self._random))",
            "acceptors = Acceptors(acceptors.old, members, draw_id(self._random))",
        ),
        (f"{PROPOSER}._accept", FOLLOWS, "pass"),
    ),
    planted(
        "newcomers are not asked",
        (CHANGING, OTHERS),
        (
            f"{PROPOSER}._invite",
            "phase.newcomers = frozenset(members) - base.acceptors.everyone",
            "phase.newcomers = frozenset()",
        ),
    ),
    planted(
        "a newcomer's promise of before it was asked counts",
        PROPOSER_TESTS,
        (f"{PROPOSER}._invite", "phase.number = self._number", "pass"),
    ),
)

OF_FORCES = (
    planted(
        "a force by a majority of the survivors",
        f"{FORCE_TESTS}::test_a_majority_of_survivors_is_not_enough",
        (f"{FORCE}._move", "case Kind.PREPARE if self._failed:", "case Kind.PREPARE if False:"),
        (
            f"{FORCE}._move",
            "case Kind.PREPARE if is_answered:",
            "case Kind.PREPARE if 2 * len(self._answered) > len(self._survivors):",
        ),
    ),
    planted(
        "a healthy register is forced",
        FORCE_TESTS,
        (f"{FORCE}._prepare", "if value.acceptors.is_quorum(deciding) and not is_begun:", "if False:"),
    ),
    planted(
        "a force is not recorded",
        (FORCE_TESTS, FORCES),
        (f"{FORCE}._accept", "forces = (*value.forces, forced)[-MOST_FORCES:]", "forces = value.forces"),
    ),
)

MUTANTS_OF_THE_REGISTER = (*OF_ACCEPTORS, *OF_ROUNDS, *OF_CHANGES, *OF_FORCES)
