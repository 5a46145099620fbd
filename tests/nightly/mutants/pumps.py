"""Bugs planted in several pumps: who serves whom, what holds for all, and what is served at one moment."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted_at

IN_CREW = "gossipkv.serving._crew:Crew"
IN_FILE = "gossipkv.storage._mapped_file:MappedFile"

MUTANTS_OF_PUMPS = (
    Mutant(
        "a generation is published to one pump after the other",
        (
            Edit("gossipkv.serving.pumps:Pumps.publish", "with self._all_turns():", "if True:"),
            Edit(
                "gossipkv.serving.pumps:Pumps.publish",
                "core.publish(table)",
                "with core.turn or nullcontext(): core.publish(table)",
            ),
        ),
        ("tests/unit/serving/test_pumps.py",),
        "property",
    ),
    *planted_at(
        "tests/unit/serving/test_pumps.py",
        ("whoever comes is the first pump's", f"{IN_CREW}.admit", "least = pump", "least = 0"),
        (
            "each pump may have all connections",
            f"{IN_CREW}.admit",
            "elif self.connections >= self.max_connections or (",
            "elif self.seats[0].connections >= self.max_connections or (",
        ),
        (
            "who has gone keeps a place",
            f"{IN_CREW}.leave",
            "self.seats[pump].connections -= 1",
            "pass",
        ),
        ("what is lent is there as before", f"{IN_CREW}.lend", "self.spare -= lent", "pass"),
        (
            "requests in flight are each pump's own",
            "gossipkv.serving._connections:Connections.add_in_flight",
            "count_in_flight(self.crew, 1)",
            "pass",
        ),
    ),
    *planted_at(
        "tests/unit/storage/test_twins.py",
        ("a twin pins itself alone", f"{IN_FILE}.pin", "self.origin.pins += 1", "pass"),
        (
            "twins do not hear that their file is distrusted",
            f"{IN_FILE}.follow",
            "if self.origin.distrusted and not self.distrusted:",
            "if False:",
        ),
        ("twins stay open", f"{IN_FILE}.close", "(<MappedFile>twin).let_go()", "pass"),
    ),
)
