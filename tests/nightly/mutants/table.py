"""The kill table: patches that break a promise, by promise, with the tests that must notice each.

A mutant edits single lines, each named by its place: module, function (or table), and the line, which occurs there
exactly once. A mutant is killed when a test of a property fails in its own assertion, or when a scenario of
`tests/simulation/scenarios.py`, or a run of drawn faults, reports a broken promise: the members *show* something that
is wrong, too late, or too much. An exception or a failed assertion in the patched code kills nothing, unless the mutant
names the assertion: then the assertion meets the bug before it shows.

The table has the most dangerous rules of each subsystem. The night also mutates recently changed files
(`generated.py`).
"""

from __future__ import annotations

from itertools import chain

from tests.nightly.mutants import (
    access,
    from_models,
    p1_availability,
    p2_versions,
    p3_holders,
    p4_durability,
    p4_feeds,
    p5_sessions,
    p6_registers,
    p7_agreement,
    p8_damage,
    p9_wrong_input,
    p10_bounds,
)

BY_PROMISE = {
    "P1": p1_availability.MUTANTS,
    "P2": p2_versions.MUTANTS,
    "P3": p3_holders.MUTANTS,
    "P4": (*p4_durability.MUTANTS, *p4_feeds.MUTANTS),
    "P5": p5_sessions.MUTANTS,
    "P6": p6_registers.MUTANTS,
    "P7": p7_agreement.MUTANTS,
    "P8": p8_damage.MUTANTS,
    "P9": p9_wrong_input.MUTANTS,
    "P10": p10_bounds.MUTANTS,
}
MUTANTS = (*access.MUTANTS, *from_models.MUTANTS, *chain.from_iterable(BY_PROMISE.values()))
