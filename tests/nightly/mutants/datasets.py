"""Bugs planted in the core of a database in the cluster: what a gate counts, what goes, and what is never mixed."""

from __future__ import annotations

from tests.nightly.mutants.mutant import planted

CLUSTER = "gossipkv.dataset.cluster"
TESTS = "tests/unit/dataset/cluster"
SCENARIO = "tests/simulation/test_datasets.py::test_no_promise_is_broken"


MUTANTS_OF_DATASETS = (
    planted(
        "suspects are counted in a gate",
        f"{CLUSTER}.survey:Survey.availability",
        "if said is not None and said.ready and is_alive and member.epoch != SILENT_EPOCH:",
        "if said is not None and said.ready and member.epoch != SILENT_EPOCH:",
        f"{TESTS}/test_gate.py",
    ),
    planted(
        "a gate asks nobody directly",
        f"{CLUSTER}.gates:Gates._holds",
        "return gate.holds(available.alive, mine, least=least or self._terms.min_replication, now_ms=now_ms)",
        "return available.is_covered",
        f"{SCENARIO}[gone_before_the_gate]",
    ),
    planted(
        "a stale answer is counted",
        f"{CLUSTER}.gate:Gate.holds",
        "if now_ms <= heard.asked_ms + self._max_age_ms:",
        "if now_ms >= heard.asked_ms:",
        f"{TESTS}/test_gate.py",
    ),
    planted(
        "an answer outlives its connection",
        f"{CLUSTER}.gate:Gate.void",
        "if self._heard.pop(member, None) is not None:",
        "if member in self._heard:",
        f"{TESTS}/test_gate.py",
    ),
    planted(
        "who has not answered is asked again at once",
        f"{CLUSTER}.gate:Gate.due_ms",
        "return asked.at_ms + self._max_age_ms // 2 if asked.epoch == member.epoch else None",
        "return None",
        f"{TESTS}/test_gate.py",
    ),
    planted(
        "differing seals are counted",
        f"{CLUSTER}.gate:Gate.holds",
        "counted.append(owned - disputed.get(member.name, self.nothing))",
        "counted.append(owned)",
        f"{TESTS}/test_gate.py",
    ),
    planted(
        "laggards are ignored",
        f"{CLUSTER}.core:DatabaseCore._retire",
        "is_needed = waits or bool(needed_by(version, needs))",
        "is_needed = waits",
        f"{SCENARIO}[laggard]",
    ),
    planted(
        "the dead are taken at their last word",
        f"{CLUSTER}.retiring:Needs.has",
        "return self.newest is not None and self.active < version <= self.newest",
        "return False",
        f"{SCENARIO}[death_after_its_switch]",
    ),
    planted(
        "who comes late begins with what is old",
        f"{CLUSTER}.gates:Gates._waits_for_newer_until_ms",
        "if available is None or not available.is_covered:",
        "if True:",
        f"{SCENARIO}[late_joiner_after_an_upgrade]",
    ),
    planted(
        "who comes late waits for owners that do not answer",
        f"{CLUSTER}.gates:Gates._waits_for_newer_until_ms",
        "return (now_ms if gate is None or gate.since_ms is None else gate.since_ms) + self._terms.grace_ms",
        "return now_ms + self._terms.grace_ms",
        f"{TESTS}/test_gate.py",
    ),
    planted(
        "a switch waits for copies for ever",
        f"{CLUSTER}.gates:Gates._waits_until_ms",
        "return (now_ms if gate.held_since_ms is None else gate.held_since_ms) + patience_ms",
        "return now_ms + patience_ms",
        f"{TESTS}/test_gate.py",
    ),
    planted(
        "a switch has no patience",
        f"{CLUSTER}.gates:Gates._waits_until_ms",
        "if patience_ms == 0 or gate.identity.version == self.active.version:",
        "if True:",
        f"{SCENARIO}[death_after_a_patient_switch]",
    ),
    planted(
        "a version goes while nobody is heard",
        f"{CLUSTER}.core:DatabaseCore._retire",
        "is_needed = waits or bool(needed_by(version, needs))",
        "is_needed = bool(needed_by(version, needs))",
        f"{SCENARIO}[all_cut_off]",
    ),
    planted(
        "a copy is dropped before it is withdrawn",
        f"{CLUSTER}.core:DatabaseCore._look_around",
        "if said is not None and not self._retiring.is_leaving(version):",
        "if said is not None:",
        f"{SCENARIO}[one_empty_node]",
    ),
    planted(
        "the identity that is asked for is not looked at",
        f"{CLUSTER}.core:DatabaseCore.answer",
        "if identity is None or identity.wire_id != wire_id or self._refutations.refutes(identity):",
        "if identity is None or self._refutations.refutes(identity):",
        f"{TESTS}/test_gate.py",
    ),
    planted(
        "a refutation that is heard is forgotten",
        f"{CLUSTER}.core:DatabaseCore.hear",
        "self._learn(digest, functions)",
        "pass",
        f"{TESTS}/test_refutations.py",
    ),
    planted(
        "what is refuted is asked for",
        f"{CLUSTER}.routes:Routes._step_of",
        "found = {identity: some for identity, some in found.items() if not self._refutations.refutes(identity)}",
        "pass",
        f"{TESTS}/test_refutations.py",
    ),
    planted(
        "a version may be named before its gate",
        f"{CLUSTER}.view:DatabaseView.passed",
        "return version in self._gates.passed",
        "return version in self._gates.available",
        f"{SCENARIO}[stray]",
    ),
    planted(
        "a build does not follow what others have published",
        "gossipkv.dataset.build.steps:_by_the_right_function",
        "recognition = recognition.towards(job.follow)",
        "pass",
        "tests/unit/dataset/build/test_steps.py",
    ),
    planted(
        "shares are recomputed",
        f"{CLUSTER}.shares:Shares.of",
        "base = self._computed.get((copy.version, partitions))",
        "base = None",
        f"{TESTS}/test_shares.py",
    ),
    planted(
        "who takes no part in a database is waited for for ever",
        f"{CLUSTER}.members:Membership.is_given_up",
        "if since_ms is None and not is_heard:",
        "if False:",
        f"{TESTS}/test_retiring.py",
    ),
    planted(
        "a switch goes on with old answers behind a rewrite",
        "gossipkv.dataset.lifecycle.switching:Switching.switch",
        "if self._writing.locked():  # Answers to the gate would grow old meanwhile.",
        "if False:",
        "tests/unit/dataset/test_remembered.py",
    ),
    planted(
        "a newer epoch is taken for a withdrawal",
        f"{CLUSTER}.others:Others.hear",
        "said.former = said.holds()",
        "said.former = {}",
        f"{TESTS}/test_others.py",
    ),
    planted(
        "a list is used before it was still",
        f"{CLUSTER}.convergence:Convergence.step",
        "elif membership.knows_nobody or (self._is_firm and now_ms - self._since_ms >= self._settle_ms):",
        "else:",
        f"{SCENARIO}[automatic_ids_at_once]",
    ),
)
