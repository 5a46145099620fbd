"""Bugs planted in METADATA: in what is held and let go, in transactions, in what is known, in who founds."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted

METADATA = "gossipkv.register.metadata"
TESTS = "tests/unit/register/metadata"
TRANSACTIONS = f"{TESTS}/test_transactions.py"
SERVER = f"{TESTS}/test_server.py"
BAD_DAYS = f"{TESTS}/test_server_bad_days.py"
LEDGER = f"{TESTS}/test_ledger.py"
HEADS = f"{TESTS}/test_known.py"
CATALOGUE = f"{TESTS}/test_catalogue.py"
CATALOGUE_BAD_DAYS = f"{TESTS}/test_catalogue_bad_days.py"
REPLACEMENT = f"{TESTS}/test_replacement.py"

TRANSACT = f"{METADATA}.transactions:Transactions._transact"
UNTIL_DONE = f"{METADATA}.transactions:Transactions._until_done"
DOUBTS = "self._heads.doubt(self._ledger.register)"
FORGETS = f"await self._ledger.discard()\n            {DOUBTS}"
COLLECTS = "await ledger.collect(known.head.config, known.head.roots | self._accepted(register))"
OUTDONE = "if before is not None and before.head.ended and chosen.generation < before.generation:"
SHOWS = "self._heads.show(register, committed, written=committed.head.transaction == transaction)"
ENDS = 'return Applied(head.encode(), b"" if head.transaction == argument else DROPPED_BEFORE)'

DECIDING = "gossipkv.table.deciding:Deciding"
DECIDING_TESTS = "tests/unit/table/test_deciding.py"
HEEDS = """heard_of = metadata.known.get(register)
                    if heard_of is not None:
                        higher = heard_of.head._replace(config=max(heard_of.head.config, hint.config))
                        await metadata.learn(register, heard_of._replace(head=higher))"""
DEAD = "return generation_of(config) > generation_of(base) or sequence_of(config) > sequence_of(base) + LIFE"


MUTANTS_OF_METADATA = (
    planted(
        "a body is removed when its swap came to nothing",
        UNTIL_DONE,
        DOUBTS,
        FORGETS,
        f"{SERVER}::test_nothing_goes_that_a_swap_may_name",
    ),
    planted(
        "a page is unpinned while a swap may name it",
        f"{METADATA}.server:Metadata._settle",
        COLLECTS,
        "await ledger.collect(1 << 64, known.head.roots | self._accepted(register))",
        f"{SERVER}::test_nothing_goes_that_a_swap_may_name",
    ),
    planted(
        "what is not synced is held",
        f"{METADATA}.ledger:Ledger.holds",
        "return pin is not None and all(self._here.get(name, _ABSENT) is None for name in pin.names)",
        "return pin is not None",
        f"{LEDGER}::test_a_first_map_and_a_change",
    ),
    planted(
        "a head is accepted without its pages",
        f"{METADATA}.server:Metadata._holds",
        "return is_here",
        "return True",
        f"{TRANSACTIONS}::test_nobody_accepts_a_head_without_its_pages",
    ),
    planted(
        "a head is accepted with a part of its pages",
        f"{METADATA}.ledger:Ledger.has",
        "return pin is not None and all(name in self._here for name in pin.names)",
        "return pin is not None",
        f"{LEDGER}::test_a_map_of_many_pieces_is_here_when_all_of_it_is",
    ),
    planted(
        "what goes along with a request is not looked at",
        f"{METADATA}.ledger:Ledger.append_checked",
        "check_change(self.read, self.kind, offer.base, offer.changed, offer.config)",
        "pass",
        f"{LEDGER}::test_what_is_no_change_of_its_base",
    ),
    planted(
        "what belongs to a value is fetched by all",
        TRANSACT,
        "outcome = await self._registers.change(register, change, timeout_s=ROUND_S, offer=offer)",
        "outcome = await self._registers.change(register, change, timeout_s=ROUND_S)",
        f"{TRANSACTIONS}::test_who_has_written_last_asks_each_other_server_once",
    ),
    planted(
        "a coordinator pins more than it may",
        f"{METADATA}.ledger:Ledger.append",
        "self._check_room(changed.root)",
        "pass",
        f"{TRANSACTIONS}::test_a_coordinator_that_holds_too_many_maps_asks_nobody",
    ),
    planted(
        "an operation is re-based over a touched partition",
        f"{METADATA}.operations:_try",
        "if newest > operation.base:",
        "if False:",
        f"{TRANSACTIONS}::test_conflicts_go_by_partition",
    ),
    planted(
        "an operation lives for ever",
        f"{METADATA}.operations:is_dead",
        DEAD,
        "return False",
        f"{TRANSACTIONS}::test_its_life_ends",
    ),
    planted(
        "the catalogue is founded by anyone",
        "gossipkv.table.founding:may_not_found",
        "if record.drew != cluster_id:",
        "if False:",
        "tests/unit/table/test_founding.py",
    ),
    planted(
        "what was shown by a late quorum read takes the place of what is newer",
        f"{METADATA}.known:Heads.show",
        "if known.place >= standing.shown.place:",
        "if True:",
        f"{SERVER}::test_an_older_look_changes_nothing",
    ),
    planted(
        "a lost creation is let go at once",
        f"{METADATA}.server:Metadata.let_go",
        "if is_dead(self._unnamed.setdefault(register, config + LIFE), config):",
        "if True:",
        f"{CATALOGUE}::test_a_creation_that_is_lost",
    ),
    planted(
        "that a table was ended behind a force is forgotten",
        f"{METADATA}.server:Metadata._forget",
        "is_kept = self._is_outdone(register)",
        "is_kept = False",
        f"{BAD_DAYS}::test_a_table_that_was_let_go_of_behind_a_force_does_not_come_back",
    ),
    planted(
        "what a force has ended is believed of those who have not heard of it",
        f"{METADATA}.server:Metadata.quorum_read",
        OUTDONE,
        "if False:",
        f"{BAD_DAYS}::test_a_table_that_was_let_go_of_behind_a_force_does_not_come_back",
    ),
    planted(
        "a lost answer of a server counts as nothing done",
        f"{METADATA}.catalogue:Catalogue.transact",
        "why, is_sent = error.message, True",
        "why = error.message",
        f"{CATALOGUE}::test_an_answer_that_is_lost_is_unknown",
    ),
    Mutant(
        "an id is not pinned",
        (
            Edit(f"{DECIDING}.take_part", "await self._cluster.pin()", "pass"),
            Edit(f"{DECIDING}._begin", "assert self._identity.record.pinned, self._identity.record", "pass"),
        ),
        (f"{DECIDING_TESTS}::test_pinned_first_then_a_store_then_founded",),
        "property",
    ),
    planted(
        "a sequence that was heard is persisted",
        f"{DECIDING}._look",
        "await metadata.quorum_read(register, hint.acceptors)",
        HEEDS,
        f"{DECIDING_TESTS}::test_lies_about_what_was_decided_cause_one_look_each",
    ),
    planted(
        "whoever has an id is taken for the operation that had it before",
        f"{METADATA}.operations:_judge",
        "if kept is not None and kept.is_of(operation.digest):",
        "if kept is not None:",
        f"{TESTS}/test_operations.py::test_an_id_that_is_used_again_for_another_operation_is_refused",
    ),
    planted(
        "digests are not kept",
        f"{METADATA}.operations:_judge",
        "edit.record(operation.id, answers[-1].outcome, operation.digest)",
        "edit.record(operation.id, answers[-1].outcome)",
        f"{TESTS}/test_operations.py::test_an_id_that_is_used_again_for_another_operation_is_refused",
    ),
    planted(
        "whose id was another table's is told of the one that it drew",
        f"{METADATA}.catalogue:Catalogue.create",
        "made = named if is_own else self._made(wanted, operation)",
        "made = named",
        f"{CATALOGUE_BAD_DAYS}::test_an_operation_s_id_that_is_used_for_other_tables_makes_one",
    ),
    planted(
        "any table of that name is the one that an operation has made",
        f"{METADATA}.catalogue:Catalogue._made",
        "if is_so or not kept.digest:",
        "if True:",
        f"{CATALOGUE_BAD_DAYS}::test_an_operation_s_id_that_is_used_for_other_tables_makes_one",
    ),
    planted(
        "what comes late of a map that was let go of stays for good",
        f"{METADATA}.ledger:Ledger.end",
        "self._is_over = True",
        "pass",
        f"{TESTS}/test_ledger_bad_days.py::test_what_comes_while_a_map_is_let_go_of_stays_nowhere",
    ),
    planted(
        "tables do not grow",
        f"{METADATA}.catalogue:Catalogue.grow",
        "short = [register for register in sorted(self._metadata.known) if self._missing(register, alive)]",
        "short = [register for register in [self.register] if self._missing(register, alive)]",
        f"{REPLACEMENT}::test_all_registers_grow_with_the_cluster",
    ),
    planted(
        "acceptors that somebody else has changed meanwhile are changed again",
        f"{METADATA}.catalogue:Catalogue.reconfigure",
        "wanted = Reconfigure(tuple(members), known.acceptors.new if instead is None else tuple(instead))",
        "wanted = Reconfigure(tuple(members), known.acceptors.new)",
        f"{REPLACEMENT}::test_all_registers_grow_with_the_cluster",
    ),
    planted(
        "where a node decides already, its register has one acceptor less",
        f"{METADATA}.catalogue:Catalogue.replace",
        "if len(stay) < len(members):",
        "if False:",
        f"{REPLACEMENT}::test_a_node_takes_the_place_of_another",
    ),
    planted(
        "a node whose store is another one keeps its place as it was",
        f"{METADATA}.catalogue:Catalogue.replace",
        "if not any(one.node == leaver and one != comer for one in members):",
        "if comer.node == leaver or not any(one.node == leaver for one in members):",
        f"{REPLACEMENT}::test_a_node_whose_store_is_another_takes_its_own_place",
    ),
    planted(
        "one register that cannot be changed keeps all others as they are",
        "gossipkv.cli.metadata:replace",
        'if "register" not in error.details:  # It stands in the way of all.',
        "if True:",
        "tests/unit/cli/test_metadata.py::test_replacing_where_something_stands_in_the_way",
    ),
    planted(
        "a node does not learn what it commits",
        TRANSACT,
        SHOWS,
        "pass",
        f"{HEADS}::test_what_a_node_commits_it_knows",
    ),
    planted(
        "pins stay when a later head is known",
        f"{METADATA}.server:Metadata._settle",
        COLLECTS,
        "pass",
        f"{HEADS}::test_what_is_known_ends_pins_before_there_are_many",
    ),
    planted(
        "who holds what others commit waits until it is told",
        f"{METADATA}.server:Metadata.append",
        "self._look_if_many(register)",
        "pass",
        f"{HEADS}::test_pins_end_with_what_is_learned",
    ),
    planted(
        "every head of a stream is written down",
        f"{METADATA}.known:Heads._learn",
        "with trio.move_on_after(PAUSE_S):",
        "with trio.move_on_after(0):",
        f"{HEADS}::test_a_stream_is_learned_in_strides",
    ),
    planted(
        "who waits for a config id is told of any",
        f"{METADATA}.known:Heads.reached",
        "if found is not None and found.config >= config:",
        "if found is not None:",
        f"{HEADS}::test_who_waits_is_told",
    ),
    planted(
        "a root goes while somebody fetches it",
        f"{METADATA}.ledger:Ledger.collect",
        "held = {*kept, *self._lent}",
        "held = {*kept}",
        f"{LEDGER}::test_a_root_stays_while_somebody_fetches_it",
    ),
    planted(
        "what follows a root of the same moment is fetched",
        f"{METADATA}.ledger:Ledger.take",
        "await self._follow(base)",
        "pass",
        f"{LEDGER}::test_changes_that_come_at_once_follow_each_other",
    ),
    planted(
        "a read that meets a writer takes a round at once",
        "gossipkv.register.proposer:Pending.needs_round",
        "return self.looks >= MOST_LOOKS",
        "return self.looks >= 1",
        "tests/unit/register/test_proposer.py::test_a_read_waits_for_who_writes_just_now",
    ),
    planted(
        "each who drops a table is told that it did",
        f"{METADATA}.head:_drop",
        ENDS,
        "return Applied(head.encode())",
        f"{CATALOGUE}::test_what_is_dropped_twice_is_dropped_once",
    ),
    planted(
        "a step of a decision takes longer than all of it may",
        f"{METADATA}.deadline:Deadline.step",
        "with trio.move_on_at(self._at_s) as scope:",
        "with trio.move_on_after(10) as scope:",
        f"{CATALOGUE}::test_a_decision_has_one_deadline",
    ),
    planted(
        "a table that is not known yet is said not to be",
        f"{METADATA}.server:Metadata.tree",
        'raise NotReady("what is decided of this table is not known here yet")',
        'raise UnknownDatabase("there is no such table")',
        "tests/unit/table/test_methods.py::test_a_table_that_is_listed_and_not_known_yet",
    ),
    planted(
        "a peer that is asked to wait answers at once",
        "gossipkv.table.for_peers:PeerMethods._known",
        "await metadata.heads.reached(register, config)",
        "pass",
        "tests/unit/table/test_methods.py::test_who_asks_a_peer_may_wait_for_a_config_id",
    ),
    planted(
        "a table that nobody has read waits for the poll",
        f"{DECIDING}._heed",
        "if table.id not in self.metadata.known:  # Who made it may have gone before anybody has read its map.",
        "if False:",
        f"{DECIDING_TESTS}::test_a_table_whose_maker_is_gone_is_known",
    ),
    planted(
        "who holds as much as it may never learns again",
        f"{METADATA}.server:Metadata._hold_map",
        "await each.ledger.collect(known.head.config, roots | self._accepted(register))",
        "pass",
        f"{HEADS}::test_who_holds_as_much_as_it_may_learns_all_the_same",
    ),
)
