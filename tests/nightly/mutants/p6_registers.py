"""Bugs by which a register, or the map that it holds, stops being linearizable (P6).

`tests/simulation/planted_in_edits.py` has those that the world of edits rejects by day.
"""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted

MUTANTS: tuple[Mutant, ...] = (
    planted(
        "phase 2 goes on without a quorum of the new value",
        "gossipkv.register.proposer:Proposer._accepted",
        "elif value.acceptors.is_quorum(accepted) and (before is None or before.is_quorum(accepted)):",
        "elif base.acceptors.is_quorum(accepted):",
        "tests/unit/register/test_changes_of_acceptors.py",
    ),
    planted(
        "phase 2 goes on without a quorum of the value that it changes",
        "gossipkv.register.proposer:Proposer._accepted",
        "elif value.acceptors.is_quorum(accepted) and (before is None or before.is_quorum(accepted)):",
        "elif value.acceptors.is_quorum(accepted):",
        "tests/unit/register/test_changes_of_acceptors.py",
    ),
    Mutant(
        "a majority of the survivors forces a register",
        (
            Edit(
                "gossipkv.register.force:Force._move",
                "case RequestKind.PREPARE if self._failed:",
                "case RequestKind.PREPARE if False:",
            ),
            Edit(
                "gossipkv.register.force:Force._move",
                "case RequestKind.PREPARE if is_answered:",
                "case RequestKind.PREPARE if 2 * len(self._answered) > len(self._survivors):",
            ),
        ),
        ("tests/unit/register/test_force.py::test_a_majority_of_survivors_is_not_enough",),
        "property",
    ),
    planted(
        "a node that was found behind forgets it with the process",
        "gossipkv.register.shell:Registers._close_behind",
        'self._space.close(why, {BEHIND + self.me.store.to_bytes(8, "big"): why.encode()})',
        "self._space.close(why, {})",
        "tests/unit/register/test_shell.py::test_a_store_that_is_behind_decides_nothing",
    ),
    planted(
        "positions count of whoever asks, members or not",
        "gossipkv.table.peers.words:Words.counts",
        "return self._knows_peers or hmac.compare_digest(word, self.made_for(teller))",
        "return True",
        "tests/simulation/test_strangers.py::test_nothing_lasts_of_what_a_stranger_sends",
    ),
    planted(
        "positions count of nobody who asks",
        "gossipkv.table.peers.words:Words.counts",
        "return self._knows_peers or hmac.compare_digest(word, self.made_for(teller))",
        "return self._knows_peers",
        "tests/simulation/test_strangers.py::test_members_are_believed_that_were_dialled_and_nobody_else",
    ),
    planted(
        "who would count an answer of a store that may be behind is given one",
        "gossipkv.register.shell:Registers.check_been",
        "if acceptor == self.me and not self._seen.has_been(position):",
        "if False:",
        "tests/simulation/test_strangers.py::test_nothing_lasts_of_what_a_stranger_sends",
    ),
    planted(
        "any node founds the catalogue",
        "gossipkv.table.ports:may_not_found",
        "if record.drew != cluster_id:",
        "if False:",
        "tests/unit/table/test_founding.py",
    ),
    planted(
        "a value is accepted without the map before it",
        "gossipkv.register.state:RegisterMap.holds",
        "return bool(value.ended) or self.state_of(value) is not None",
        "return True",
        "tests/unit/register/metadata/test_server.py::test_a_value_is_refused_without_the_map_before_it",
    ),
    planted(
        "a tail grows while servers fail in a row",
        "gossipkv.register.state:RegisterMap.is_full",
        "return tail_bytes > MAX_TAIL_BYTES",
        "return False",
        "tests/unit/register/metadata/test_transactions.py::test_a_long_tail_is_decided_before_another_"
        "transaction_joins_it",
    ),
    planted(
        "an outcome is deleted while an absent one means no",
        "gossipkv.register.metadata.operations:MapEdit.edits",
        "last = sequence_of(self.config) - KEPT - 1",
        "last = sequence_of(self.config) - KEPT",
        "tests/unit/register/metadata/test_operations.py::test_a_repetition_is_answered_as_long_as_outcomes_are_kept",
    ),
    planted(
        "an operation that one server does not know is asked of no other",
        "gossipkv.register.metadata.catalogue:Catalogue.transact",
        "if answers and not is_unsupported(answers):",
        "if answers:",
        "tests/unit/register/metadata/test_transactions.py::test_an_operation_that_one_server_does_not_know_is_"
        "done_by_another",
    ),
    planted(
        "an id is taken for the operation that had it before",
        "gossipkv.register.metadata.operations:_judged",
        "if kept is not None and kept.digest == operation.digest:",
        "if kept is not None:",
        "tests/unit/register/metadata/test_operations.py::test_an_id_that_is_used_again_for_another_operati"
        "on_is_refused",
    ),
)
