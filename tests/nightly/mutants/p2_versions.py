"""Bugs that lead answers back to an older version, or to another content of the same one (P2)."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted

MUTANTS: tuple[Mutant, ...] = (
    planted(
        "an order to hold a version is not said on",
        "gossipkv.dataset.cluster.core:DatabaseCore.hear",
        "self.orders = before if database.order is None else before.heard(database.order, wall_ms=wall_ms)",
        "self.orders = before",
        "tests/unit/dataset/cluster/test_orders.py",
    ),
    planted(
        "an order is obeyed before it is written down",
        "gossipkv.dataset.cluster.part:PartInCluster.order",
        "await self._shared.threads.run(self._shared.store.set_orders, self.core.name, orders)",
        "pass",
        "tests/unit/dataset/test_hold.py",
    ),
    planted(
        "a version that shrank becomes active",
        "gossipkv.dataset.cluster.gates:Gates.may_switch",
        "return is_time and self._holds(gate, available, now_ms) and self.withheld(version) is None",
        "return is_time and self._holds(gate, available, now_ms)",
        "tests/unit/dataset/cluster/test_gate_waits.py",
    ),
    planted(
        "suspects are counted in a gate",
        "gossipkv.dataset.cluster.survey:VersionSurvey.availability",
        "if (ready or is_active) and member.standing is HolderState.ALIVE and member.epoch != SILENT_EPOCH:",
        "if (ready or is_active) and member.epoch != SILENT_EPOCH:",
        "tests/unit/dataset/cluster/test_gate.py",
    ),
    planted(
        "a gate asks nobody directly",
        "gossipkv.dataset.cluster.gates:Gates._holds",
        "return gate.holds(available.alive, mine, least=least or self._terms.min_replication, now_ms=now_ms)",
        "return available.is_covered",
        "tests/simulation/test_datasets_slow.py::test_no_promise_is_broken[gone_before_the_gate]",
    ),
    planted(
        "differing seals are counted",
        "gossipkv.dataset.cluster.gate:Gate.holds",
        "counted.append(owned - disputed.get(member.name, self.nothing))",
        "counted.append(owned)",
        "tests/unit/dataset/cluster/test_gate.py",
    ),
    planted(
        "a version goes although a laggard needs it",
        "gossipkv.dataset.cluster.core:DatabaseCore._retire",
        "is_needed = waits or bool(needed_by(version, needs))",
        "is_needed = waits",
        "tests/simulation/test_datasets_slow.py::test_no_promise_is_broken[laggard]",
    ),
    planted(
        "the dead are taken at their last word",
        "gossipkv.dataset.cluster.retiring:Needs.has",
        "return self.newest is not None and self.active < version <= self.newest",
        "return False",
        "tests/simulation/test_datasets_slow.py::test_no_promise_is_broken[death_after_its_switch]",
    ),
    planted(
        "a late node begins with an old version",
        "gossipkv.dataset.cluster.gates:Gates._waits_for_newer_until_ms",
        "if available is None or not available.is_covered:",
        "if True:",
        "tests/simulation/test_datasets_slow.py::test_no_promise_is_broken[late_joiner_after_an_upgrade]",
    ),
    planted(
        "a version goes while nobody is heard",
        "gossipkv.dataset.cluster.core:DatabaseCore._retire",
        "is_needed = waits or bool(needed_by(version, needs))",
        "is_needed = bool(needed_by(version, needs))",
        "tests/simulation/test_datasets_slow.py::test_no_promise_is_broken[all_cut_off]",
    ),
    planted(
        "a copy is dropped before it is withdrawn",
        "gossipkv.dataset.cluster.core:DatabaseCore._look_around",
        "if statement is not None and not self._retiring.is_leaving(version):",
        "if statement is not None:",
        "tests/simulation/test_datasets.py::test_no_promise_is_broken[one_empty_node]",
    ),
    planted(
        "a restart forgets the content that clients had",
        "gossipkv.dataset.cluster.gates:Gates.remember",
        "self._fix(identity, seals)",
        "pass",
        "tests/unit/dataset/cluster/test_gate.py",
    ),
    planted(
        "a rewrite that waited for a switch undoes it",
        "gossipkv.dataset.lifecycle.switching:Switching._rewrite",
        "async with self._writing:",
        """before = self.active
        async with self._writing:
            self.active = before""",
        "tests/unit/dataset/test_remembered.py::test_a_rewrite_that_waited_for_a_switch_does_not_undo_it",
    ),
    Mutant(
        "a generation is published to one pump after the other",
        (
            Edit(
                "gossipkv.serving.pumps:Pumps.publish",
                "with self._all_turns():",
                "if True:",
            ),
            Edit(
                "gossipkv.serving.pumps:Pumps.publish",
                "core.publish(table)",
                "with core.lock or nullcontext(): core.publish(table)",
            ),
        ),
        ("tests/unit/serving/test_pumps_slow.py",),
        "property",
    ),
    planted(
        "a cursor does not pin the version of a scan that is answered here",
        "gossipkv.serving.scan._plan:make_plan",
        "options.has_version = True",
        "options.has_version = False",
        "tests/unit/serving/test_scans.py",
    ),
    planted(
        "an answer of another version is believed",
        "gossipkv.serving.forward._get:is_version_asked",
        "and memcmp(version.data, asked.data, asked.size) == 0",
        "and True",
        "tests/unit/serving/test_forwarding.py",
    ),
)
