"""Bugs planted in the core of a database in the cluster: what a gate counts, what goes, and what is never mixed."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant

CLUSTER = "gossipkv.dataset.cluster"
TESTS = "tests/unit/dataset/cluster"
SCENARIO = "tests/simulation/test_datasets.py::test_no_promise_is_broken"


def planted(name: str, edit: Edit, test: str) -> Mutant:
    """Return a mutant of one line that one file of tests must see."""
    return Mutant(name, (edit,), (f"{TESTS}/{test}.py",), "property")


def let_loose(name: str, edit: Edit, scenario: str) -> Mutant:
    """Return a mutant of one line that must be seen by what clients of a simulated cluster get."""
    return Mutant(name, (edit,), (f"{SCENARIO}[{scenario}]",), "property")


MUTANTS_OF_DATASETS = (
    planted(
        "suspects are counted in a gate",
        Edit(
            f"{CLUSTER}.survey:Survey.availability",
            "if said is not None and said.ready and member.state is State.ALIVE and member.epoch != SILENT_EPOCH:",
            "if said is not None and said.ready and member.epoch != SILENT_EPOCH:",
        ),
        "test_gate",
    ),
    let_loose(
        "a gate asks nobody directly",
        Edit(
            f"{CLUSTER}.gates:Gates._holds",
            "return gate.holds(available.alive, mine, least=self._terms.min_replication, now_ms=now_ms)",
            "return available.is_covered",
        ),
        "gone_before_the_gate",
    ),
    planted(
        "a stale answer is counted",
        Edit(
            f"{CLUSTER}.gate:Gate.holds",
            "if now_ms <= heard.asked_ms + self._max_age_ms:",
            "if now_ms >= heard.asked_ms:",
        ),
        "test_gate",
    ),
    planted(
        "an answer outlives its connection",
        Edit(
            f"{CLUSTER}.gate:Gate.void",
            "if self._heard.pop(member, None) is not None:",
            "if member in self._heard:",
        ),
        "test_gate",
    ),
    planted(
        "who has not answered is asked again at once",
        Edit(
            f"{CLUSTER}.gate:Gate.due_ms",
            "return asked.at_ms + self._max_age_ms // 2 if asked.epoch == member.epoch else None",
            "return None",
        ),
        "test_gate",
    ),
    planted(
        "differing seals are counted",
        Edit(
            f"{CLUSTER}.gate:Gate.holds",
            "counted.append(owned - disputed.get(member.name, self.nothing))",
            "counted.append(owned)",
        ),
        "test_gate",
    ),
    let_loose(
        "laggards are ignored",
        Edit(
            f"{CLUSTER}.core:DatabaseCore._retire",
            "is_needed = waits or bool(needed_by(version, needs))",
            "is_needed = waits",
        ),
        "laggard",
    ),
    let_loose(
        "a version goes while nobody is heard",
        Edit(
            f"{CLUSTER}.core:DatabaseCore._retire",
            "is_needed = waits or bool(needed_by(version, needs))",
            "is_needed = bool(needed_by(version, needs))",
        ),
        "all_cut_off",
    ),
    let_loose(
        "a copy is dropped before it is withdrawn",
        Edit(
            f"{CLUSTER}.core:DatabaseCore._look_around",
            "if said is not None and not self._retiring.is_leaving(version):",
            "if said is not None:",
        ),
        "one_empty_node",
    ),
    planted(
        "the identity that is asked for is not looked at",
        Edit(
            f"{CLUSTER}.core:DatabaseCore.answer",
            "if identity is None or identity.wire_id != wire_id or self._refutations.refutes(identity):",
            "if identity is None or self._refutations.refutes(identity):",
        ),
        "test_gate",
    ),
    planted(
        "a refutation that is heard is forgotten",
        Edit(
            f"{CLUSTER}.core:DatabaseCore.hear",
            "self._learn(digest, functions)",
            "pass",
        ),
        "test_refutations",
    ),
    planted(
        "what is refuted is asked for",
        Edit(
            f"{CLUSTER}.routes:Routes._step_of",
            "found = {identity: some for identity, some in found.items() if not self._refutations.refutes(identity)}",
            "pass",
        ),
        "test_refutations",
    ),
    let_loose(
        "a version may be named before its gate",
        Edit(
            f"{CLUSTER}.view:DatabaseView.passed",
            "return version in self._gates.passed",
            "return version in self._gates.available",
        ),
        "stray",
    ),
    Mutant(
        "a build does not follow what others have published",
        (
            Edit(
                "gossipkv.dataset.build.steps:_by_the_right_function",
                "recognition = recognition.towards(job.follow)",
                "pass",
            ),
        ),
        ("tests/unit/dataset/build/test_steps.py",),
        "property",
    ),
    planted(
        "shares are recomputed",
        Edit(
            f"{CLUSTER}.shares:Shares.of",
            "base = self._computed.get((copy.version, partitions))",
            "base = None",
        ),
        "test_shares",
    ),
    planted(
        "who takes no part in a database is waited for for ever",
        Edit(f"{CLUSTER}.members:Membership.is_given_up", "if since_ms is None and not is_heard:", "if False:"),
        "test_retiring",
    ),
    Mutant(
        "a switch goes on with old answers behind a rewrite",
        (
            Edit(
                "gossipkv.dataset.lifecycle.switching:Switching.switch",
                "if self._writing.locked():  # Answers to the gate would grow old meanwhile.",
                "if False:",
            ),
        ),
        ("tests/unit/dataset/test_remembered.py",),
        "property",
    ),
    planted(
        "a newer epoch is taken for a withdrawal",
        Edit(
            f"{CLUSTER}.others:Others.hear",
            "said.former = said.holds()",
            "said.former = {}",
        ),
        "test_others",
    ),
    let_loose(
        "a list is used before it was still",
        Edit(
            f"{CLUSTER}.convergence:Convergence.step",
            "elif membership.knows_nobody or (self._is_firm and now_ms - self._since_ms >= self._settle_ms):",
            "else:",
        ),
        "automatic_ids_at_once",
    ),
)
