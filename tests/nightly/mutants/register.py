"""Bugs planted in the register: in what acceptors promise and keep, in rounds, in changes of acceptors, in forces."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted

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
SEEN = f"{REGISTER}.seen:Seen"
SEEN_TESTS = f"{TESTS}/test_seen.py"
OLDER_COPIES = f"{TESTS_AT_NIGHT}/test_older_copies.py"
SHELL = f"{REGISTER}.shell:Registers"
DEADLINES = f"{TESTS}/test_shell.py::test_a_deadline_ends_every_wait"

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


OF_ACCEPTORS = (
    planted(
        "a quorum of one",
        f"{REGISTER}.configuration:_is_majority",
        "return 2 * sum(member in of for member in members) > len(members)",
        "return any(member in of for member in members)",
        SAME,
    ),
    Mutant(
        "a promise is ignored",
        (
            Edit(JUDGE_ACCEPT, BEHIND, "if record.accepted is not None and ballot <= record.accepted:"),
            Edit(
                JUDGE_ACCEPT,
                ACCEPTED,
                ACCEPTED.replace("ballot.next() if request.stays else ballot", "max(ballot, record.promise)"),
            ),
        ),
        (SAME, LOSSY),
        "property",
    ),
    planted(
        "an acceptor judges by what is synced",
        f"{ACCEPTOR}:Acceptor.record",
        "if appended is not None:",
        "if False:",
        SAME,
        LOSSY,
    ),
    Mutant(
        "a repeated accept lowers a promise",
        (
            Edit(JUDGE_ACCEPT, AGAIN, "return Verdict.OK, Record(ballot, ballot, value, record.conflict)"),
            Edit(f"{ACCEPTOR}:Acceptor.receive", GOES_ON, "pass"),
        ),
        (SAME, LOSSY),
        "property",
    ),
    Mutant(
        "an accept is compared with the promise only, and is none",
        (
            Edit(JUDGE_ACCEPT, BEHIND, "if ballot < record.promise:"),
            Edit(JUDGE_ACCEPT, ACCEPTED, "return Verdict.OK, Record(record.promise, ballot, value, record.conflict)"),
        ),
        (ORACLE,),
        "property",
    ),
    planted(
        "an acceptor answers before the sync",
        f"{ACCEPTOR}:Acceptor._answer",
        "if appended is None:",
        "if True:",
        SAME,
        LOSSY,
    ),
    Mutant(
        "a disk that was lost or put back answers under the old id",
        (
            Edit(f"{ACCEPTOR}:Acceptor.receive", "if request.to != self.me:", "if False:"),
            Edit(
                f"{ACCEPTOR}:Acceptor.receive",
                "reply = Reply(verdict, register, self.me, request.number, request.ballot, told)",
                "reply = Reply(verdict, register, request.to, request.number, request.ballot, told)",
            ),
        ),
        (DISKS,),
        "property",
    ),
    planted(
        "an acceptor that was removed forgets",
        f"{ACCEPTOR}:Acceptor.record",
        "return None if data is None else decode_record(data)",
        FORGETS,
        CHANGING,
        OTHERS,
    ),
    planted(
        "an empty acceptor promises to anybody",
        f"{ACCEPTOR}:_judge_without",
        "case Request(Kind.PREPARE, ballot=Ballot() as ballot, holding=bytes(payload)):",
        "case Request(Kind.PREPARE, ballot=Ballot() as ballot, holding=payload):",
        ORACLE,
    ),
    planted(
        "two forces are forgotten",
        f"{ACCEPTOR}:judge",
        "return Verdict.CONFLICTING, record._replace(conflict=ballot.generation)",
        "return Verdict.CONFLICTING, record",
        ORACLE,
        f"{FORCE_TESTS}::test_two_forces_at_once_on_the_same_survivors",
    ),
    planted(
        "a made-up counter is believed",
        f"{ACCEPTOR}:_judge_prepare",
        "if not ballot.is_plausible_after(record.promise):",
        "if False:",
        ORACLE,
    ),
)

OF_ROUNDS = (
    Mutant(
        "not applied is said of what is unknown",
        (
            Edit(f"{PROPOSER}._give_up", "if pending.sent:", "if False:"),
            Edit(f"{PROPOSER}._refuse", "end = End.UNKNOWN if pending.sent else End.REFUSED", "end = End.REFUSED"),
        ),
        (LOSSY, SAME),
        "property",
    ),
    planted(
        "what was refused is proposed",
        f"{PROPOSER}._accept",
        "batch = [pending for pending in prepared.batch if not pending.over]  # The rest are refused.",
        "batch = prepared.batch",
        PROPOSER_TESTS,
    ),
    planted(
        "a ballot is used twice",
        f"{PROPOSER}._propose",
        "counter = min(max(self._top.counter, self._heard.counter) + outbid, MOST_COUNTER - 1)",
        "counter = min(max(self._top.counter + 1, self._heard.counter), MOST_COUNTER - 1)",
        LOSSY,
        SAME,
    ),
    planted(
        "a read ends after phase 1",
        f"{PROPOSER}._prepared",
        INVITED,
        TOLD_EARLY.replace("PRECONDITION", "pending.want == READ"),
        PROPOSER_TESTS,
    ),
    planted(
        "a failed change ends after phase 1",
        f"{PROPOSER}._prepared",
        INVITED,
        TOLD_EARLY.replace("PRECONDITION", "isinstance(said, Refused)"),
        PROPOSER_TESTS,
    ),
    planted("stale and doubled replies count", f"{PROPOSER}._take", STALE, "if phase is None:", LOSSY, SAME),
    planted(
        "a refusal of what was sent twice is told as one",
        f"{PROPOSER}._end",
        "case Refused() if pending.sent == 1:",
        "case Refused() if pending.sent <= 2:",
        PROPOSER_TESTS,
    ),
    planted(
        "a round that failed counts as sent",
        f"{PROPOSER}._fail",
        WAITING,
        f"{WAITING}\n        for pending in waiting:\n            pending.sent += 1",
        f"{PROPOSER_TESTS}::test_a_refusal_of_what_was_not_sent_before_is_one",
    ),
    planted(
        "what was sent once is refused where two forces meet",
        f"{PROPOSER}._refuse",
        "end = End.UNKNOWN if pending.sent else End.REFUSED",
        "end = End.UNKNOWN if pending.sent > 1 else End.REFUSED",
        PROPOSER_TESTS,
    ),
    planted(
        "an id is kept after an implausible ballot",
        f"{PROPOSER}.receive",
        "self._id = draw_id(self._random)  # Counters of this one may come again.",
        "pass",
        PROPOSER_TESTS,
    ),
    planted(
        "a counter that is implausible is not lowered",
        f"{PROPOSER}.receive",
        "self._heard = max(self._top, promise._replace(counter=max(promise.counter, leap)))",
        "pass",
        PROPOSER_TESTS,
    ),
    planted(
        "a quorum read believes the first who answers",
        f"{PROPOSER}._quorum_read",
        "if is_plain and value.acceptors.is_quorum(agreed):",
        "if is_plain and agreed:",
        PROPOSER_TESTS,
    ),
    Mutant(
        "what is cached outlives a failure",
        (
            Edit(f"{PROPOSER}._propose", "cache, self._cache = self._cache, None", "cache = self._cache"),
            Edit(f"{PROPOSER}._fail", "self._round = self._cache = None", "self._round = None"),
        ),
        (LOSSY, SAME),
        "property",
    ),
    planted(
        "a generation is ignored",
        f"{PROPOSER}._is_deposed",
        "return self._heard.generation > ballot.generation or 0 < ballot.generation <= self._conflict",
        "return False",
        FORCES,
    ),
    planted(
        "a round builds on a value of another generation",
        f"{PROPOSER}._prepared",
        SAME_LINE,
        "if phase.best is not None and has_quorum:",
        f"{FORCE_TESTS}::test_a_round_builds_on_a_value_of_its_own_generation",
    ),
    planted(
        "what is cached outlives its generation",
        f"{PROPOSER}._propose",
        CACHED,
        CACHED.replace(" or cache.ballot < self._heard", ""),
        f"{FORCE_TESTS}::test_what_is_cached_ends_with_its_generation",
    ),
    planted(
        "a round under way goes on in its generation",
        f"{PROPOSER}._take",
        "if phase.ballot is not None and self._is_deposed(phase.ballot):",
        "if False:",
        PROPOSER_TESTS,
        FORCES,
    ),
)

OF_CHANGES = (
    Mutant(
        "phase 1 on the set first guessed",
        (
            Edit(f"{PROPOSER}._see", "self._ask(phase, value.acceptors.everyone)", "pass"),
            Edit(
                f"{PROPOSER}._prepared",
                "acceptors = phase.best[1].acceptors if phase.best is not None else self.known",
                "acceptors = Acceptors.of(phase.asked) if phase.asked else self.known",
            ),
        ),
        (SETS_TESTS,),
        "property",
    ),
    planted(
        "phase 1 on the new half alone",
        f"{PROPOSER}._prepared",
        PROMISED,
        PROMISED.replace("acceptors.is", "Acceptors(acceptors.new, acceptors.new).is"),
        SETS_TESTS,
    ),
    planted(
        "phase 2 without a quorum of what is written",
        f"{PROPOSER}._accepted",
        COMMITTED,
        "elif base.acceptors.is_quorum(accepted):",
        SETS_TESTS,
    ),
    planted(
        "phase 2 without a quorum of what is changed",
        f"{PROPOSER}._accepted",
        COMMITTED,
        "elif value.acceptors.is_quorum(accepted):",
        SETS_TESTS,
    ),
    Mutant(
        "cached promises count across a joint configuration",
        (
            Edit(f"{PROPOSER}._accepted", COMMITTED, "elif base.acceptors.is_quorum(accepted):"),
            Edit(
                f"{PROPOSER}._propose",
                CACHED,
                CACHED.replace("not cache.value.acceptors.is_quorum(cache.promised)", "False"),
            ),
        ),
        (SETS_TESTS,),
        "property",
    ),
    planted("a joint configuration is left at once", f"{PROPOSER}._accept", MINE, "if True:", SETS_TESTS),
    planted(
        "a read leaves a joint configuration as it is",
        f"{PROPOSER}._quorum_read",
        PLAIN,
        "is_plain = not self._is_deposed(ballot)",
        f"{SETS_TESTS}::test_a_read_ends_a_joint_configuration",
    ),
    Mutant(
        "a joint configuration begins in another",
        (
            Edit(
                ENTERED,
                ENTERS,
                ENTERS.replace("acceptors.joint or want.members ==", "want.members in").replace(".new", "[:2]"),
            ),
            Edit(f"{PROPOSER}._accept", "if acceptors.joint:", "if acceptors.joint and members is None:"),
            Edit(
                f"{PROPOSER}._accept",
                "acceptors = acceptors.joint_with(members, draw_id(self._random))",
                "acceptors = Acceptors(acceptors.old, members, draw_id(self._random))",
            ),
            Edit(f"{PROPOSER}._accept", FOLLOWS, "pass"),
        ),
        (SETS_TESTS,),
        "property",
    ),
    planted(
        "newcomers are not asked",
        f"{PROPOSER}._invite",
        "phase.newcomers = frozenset(members) - base.acceptors.everyone",
        "phase.newcomers = frozenset()",
        CHANGING,
        OTHERS,
    ),
    planted(
        "a newcomer's promise of before it was asked counts",
        f"{PROPOSER}._invite",
        "phase.number = self._number",
        "pass",
        PROPOSER_TESTS,
    ),
)

OF_FORCES = (
    Mutant(
        "a force by a majority of the survivors",
        (
            Edit(f"{FORCE}._move", "case Kind.PREPARE if self._failed:", "case Kind.PREPARE if False:"),
            Edit(
                f"{FORCE}._move",
                "case Kind.PREPARE if is_answered:",
                "case Kind.PREPARE if 2 * len(self._answered) > len(self._survivors):",
            ),
        ),
        (f"{FORCE_TESTS}::test_a_majority_of_survivors_is_not_enough",),
        "property",
    ),
    planted(
        "a healthy register is forced",
        f"{FORCE}._prepare",
        "if value.acceptors.is_quorum(deciding) and not is_begun:",
        "if False:",
        FORCE_TESTS,
    ),
    planted(
        "a force is not recorded",
        f"{FORCE}._accept",
        "forces = (*value.forces, forced)[-MOST_FORCES:]",
        "forces = value.forces",
        FORCE_TESTS,
        FORCES,
    ),
)

OF_WAITS = (
    planted(
        "who waits for a register that is let go of waits on",
        f"{SHELL}.forget",
        'proposer.end("this node has let go of the register")',
        "self._busy.pop(proposer, None)",
        f"{DEADLINES}[a change-is let go of]",
    ),
    planted(
        "a wait is ended by its core alone",
        f"{SHELL}._outcome",
        "with trio.move_on_after(timeout_s + LATE_S):",
        "with trio.CancelScope():",
        f"{DEADLINES}[a read-wakes nobody]",
    ),
)

OF_SIGHTINGS = (
    planted(
        "what was seen is not synced with the batch",
        f"{SEEN}.records",
        "for acceptor in self._changed:",
        "for acceptor in ():",
        f"{SEEN_TESTS}::test_what_is_seen_goes_along_with_the_next_batch",
    ),
    planted(
        "what others have seen is not passed on",
        f"{SEEN}.tell",
        "for acceptor in acceptors:",
        "for acceptor in ():",
        OLDER_COPIES,
    ),
    planted(
        "a store that is behind goes on",
        f"{SEEN}._check",
        "if self.behind or self.has_been(position):",
        "if True:",
        OLDER_COPIES,
    ),
    planted(
        "a copy that is opened passes for the store by its number alone",
        f"{SEEN}.has_been",
        "return position.batches <= self._past.get(position.opening, 0) or is_forgotten",
        "return position.batches <= max([n for one, n in self._past.items() if one[0] == position.incarnation] + [0])",
        f"{SEEN_TESTS}::test_an_opening_that_takes_its_number_again",
    ),
    planted(
        "a reply counts from a store that was not told what is known of it",
        f"{SEEN}.is_counted",
        "if opening != now and batches > max(told.get(opening, 0), said.get(opening, 0)):",
        "if False:",
        f"{SEEN_TESTS}::test_a_reply_counts_of_who_was_told_all",
    ),
    planted(
        "a proposer goes on counting its own store that is behind",
        f"{SEEN}.hear",
        "is_news |= self._check(position)",
        "self._check(position)",
        f"{SEEN_TESTS}::test_rounds_begin_anew_once",
    ),
    planted(
        "a round goes on that counts on a store of which another life was seen",
        f"{SHELL}.hear",
        "for proposer in [*self._proposers.values()] if is_news else ():",
        "for proposer in ():",
        f"{TESTS}/test_shell.py::test_what_was_promised_by_another_life_counts_no_more",
    ),
    planted(
        "what was seen is told in hello alone",
        f"{SHELL}._send",
        "self._ask(send.to, send.request, self._seen.tell(sorted(acceptors)), on_reply, offer=offer)",
        "self._ask(send.to, send.request, self._seen.tell(()), on_reply, offer=offer)",
        f"{TESTS}/test_shell.py::test_a_store_that_is_behind_decides_nothing",
    ),
    planted(
        "who was found behind forgets it with the process",
        f"{SHELL}._close_behind",
        'self._space.close(why, {BEHIND + self.me.store.to_bytes(8, "big"): why.encode()})',
        "self._space.close(why, {})",
        f"{TESTS}/test_shell.py::test_a_store_that_is_behind_decides_nothing",
    ),
)

MUTANTS_OF_THE_REGISTER = (*OF_ACCEPTORS, *OF_ROUNDS, *OF_CHANGES, *OF_FORCES, *OF_WAITS, *OF_SIGHTINGS)
