"""Mutants of reads that other nodes answer: who is asked, what is believed, which ids are used again."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted

BY_HAND = ("tests/unit/serving/test_forwarding.py",)
BATCHES = ("tests/unit/serving/test_forwarded_batches.py",)
SOCKETS = ("tests/unit/serving/test_forwarding_sockets.py",)
COLD = ("tests/unit/serving/test_cold_reads.py",)
DAMAGED = ("tests/unit/serving/test_damaged_here.py",)

EXPIRE_ONE = "gossipkv.serving._asking:expire_asked"
UNDER_WAY = "set_due(asking.relays, relay, min(heard_ns + asking.stage_ns, relay.limit_ns))"
HELD_ELSEWHERE = (
    "return may_go_elsewhere(version, &options) and asking.peers.is_held(version.identity, lookup.partition)"
)
ANOTHER_STAGE = "set_due(asking.relays, relay, heard_ns + asking.stage_ns)"
ARRIVING = "elif heard_ns > 0 and now_ns < heard_ns + asking.stage_ns:"

MUTANTS_OF_FORWARDING = (
    planted(
        "an answer of another version is believed",
        "gossipkv.serving._forwarded_get:is_version_asked",
        "and memcmp(version.data, asked.data, asked.size) == 0",
        "and True",
        *BY_HAND,
    ),
    planted(
        "a miss is no answer",
        "gossipkv.serving._forwarded_get:is_value",
        "and (take_nil(&result) or take_bin(&result, &unused))",
        "and take_bin(&result, &unused)",
        *BY_HAND,
    ),
    planted(
        "what was forwarded is forwarded again",
        "gossipkv.serving._published:PublishedTable.begin_get",
        "return ELSEWHERE if may_go_elsewhere(version, &options) else HAND_OFF",
        "return ELSEWHERE if version.shared and not options.local else HAND_OFF",
        *BY_HAND,
    ),
    planted(
        "a client that goes takes its ids along",
        "gossipkv.serving._relays:abandon",
        "attempt.peer.abandoned += 1",
        "attempt.used = False",
        *BY_HAND,
    ),
    planted(
        "only who is alive is asked",
        "gossipkv.serving._peers:Peers.next_owner",
        "if not peer.known or rank > least:",
        "if not peer.known or peer.state > 0 or rank > least:",
        *BY_HAND,
    ),
    planted(
        "silence has nobody else asked",
        "gossipkv.serving._asking:expire_asked",
        "relay_stir(asking.relays, relay)",
        "set_due(asking.relays, relay, relay.whole_ns)",
        *BY_HAND,
    ),
    planted(
        "asking another one as well cancels the first",
        "gossipkv.serving._asking:expire_asked",
        "asking.counts[FORWARD_SILENCES] += 1",
        "relay.attempts.peer.abandoned += 1; relay.attempts.relay = NULL; relay.attempts = NULL",
        *BY_HAND,
    ),
    Mutant(
        "half a reply is relayed",
        (
            Edit(
                "gossipkv.serving._peer_answers:consume_answers",
                "if result == FRAME_PARTIAL:",
                "if result == FRAME_PARTIAL and size - at < 12:",
            ),
            Edit(
                "gossipkv.serving._peer_answers:consume_answers",
                "if result != FRAME_COMPLETE:",
                "if result != FRAME_COMPLETE and result != FRAME_PARTIAL:",
            ),
            Edit("gossipkv.serving._peer_answers:take_answer", "elif reason.is_answer(relay, body):", "elif True:"),
        ),
        BY_HAND,
        "property",
    ),
    planted(
        "the owner does not look at the identity",
        "gossipkv.serving._published:PublishedTable.plan",
        "return choose_version(database, options)",
        "return database.active if options.forwarded else choose_version(database, options)",
        *BY_HAND,
    ),
    planted(
        "a part is believed that has another number of values",
        "gossipkv.serving._forwarded_parts:are_values",
        "if take_array(&result) != 2 or take_array(&result) != left:",
        "take_array(&result)\n    left = take_array(&result)\n    if left < 0:",
        *BATCHES,
    ),
    planted(
        "who is silent to a part is asked for it again",
        "gossipkv.serving._forwarded_parts:begin_part_round",
        "note_silent(part)",
        "pass",
        *BATCHES,
    ),
    planted(
        "a late answer to a part is taken for those that it was passed on to, too",
        "gossipkv.serving._forwarded_parts:take_values",
        "if place.size == MISSING_VALUE:",
        "if True:",
        *BATCHES,
    ),
    planted(
        "what is damaged here is asked for elsewhere though it is to stay here",
        "gossipkv.serving._forwarded_get:may_divert",
        HELD_ELSEWHERE,
        HELD_ELSEWHERE.replace("may_go_elsewhere(version, &options) and ", ""),
        *DAMAGED,
    ),
    planted(
        "nobody hears of damage for which others answer",
        "gossipkv.serving._asking:note_damage",
        "put_bin(told, version.data, version.size)",
        "told.end = 0",
        *DAMAGED,
    ),
    planted(
        "an owner sends more than the asker reads",
        "gossipkv.serving._published:PublishedTable.begin_get",
        "lookup.max_frame = answer_limit(limits, &options)",
        "lookup.max_frame = limits.max_frame",
        *BY_HAND,
    ),
    planted(
        "whoever is of another cluster may go on asking",
        "gossipkv.serving._serving:Loop.heed",
        "self.connections.finish(connection, CLOSED_UNAUTHORIZED)",
        "pass",
        *SOCKETS,
    ),
    Mutant(
        "an answer that trickles has no end",
        (Edit(EXPIRE_ONE, "if now_ns >= relay.limit_ns:", "if False:"), Edit(EXPIRE_ONE, UNDER_WAY, ANOTHER_STAGE)),
        BY_HAND,
        "property",
    ),
    Mutant(
        "an answer that has begun is waited for, though it stalls",
        (
            Edit(EXPIRE_ONE, ARRIVING, "elif heard_ns > 0:"),
            Edit(EXPIRE_ONE, UNDER_WAY, ANOTHER_STAGE.replace("heard", "now")),
        ),
        BY_HAND,
        "property",
    ),
    planted(
        "an answer that stalls late leaves no time to ask others",
        EXPIRE_ONE,
        "relay.whole.whole_ns = min(max(relay.whole.whole_ns, heard_ns + asking.whole_ns), relay.limit_ns)",
        "pass",
        *BY_HAND,
    ),
    planted(
        "a read without a time of its own goes on as long as its answer trickles",
        "gossipkv.serving._asking:limit_asking",
        "relay.limit_ns = asking.connections.now_ns + max(<int64_t>READ_TIMEOUT_NS, asking.whole_ns)",
        "pass",
        *BY_HAND,
    ),
    planted("an answer that trickles has the rest of a stage", EXPIRE_ONE, UNDER_WAY, ANOTHER_STAGE, *BY_HAND),
    planted(
        "what is damaged here is read here again in each round",
        "gossipkv.serving._forwarded_parts:is_any_here",
        "if version.files[place.partition] != NULL and not place.damaged:",
        "if version.files[place.partition] != NULL:",
        f"{DAMAGED[0]}::test_who_is_slow_is_asked_once",
    ),
    planted(
        "a place does not say that its key is damaged here",
        "gossipkv.serving._batches:add_place",
        "place.damaged = target.file != NULL",
        "place.damaged = False",
        f"{DAMAGED[0]}::test_who_is_slow_is_asked_once",
    ),
    planted(
        "a late answer to a read that waits for the disk by now is nonsense",
        "gossipkv.serving._peer_answers:take_answer",
        "elif reason.is_answer(relay, body):",
        "elif <int>relay.kind != 6 and reason.is_answer(relay, body):",
        *BY_HAND,
    ),
    planted(
        "a read begins with the body of another",
        "gossipkv.serving._relays:relay_begin",
        "memset(<char*>relay + sizeof(Relay), 0, relays.bodies[<int>kind].size - sizeof(Relay))",
        "pass",
        *COLD,
    ),
    planted(
        "a read begins with the rounds of another",
        "gossipkv.serving._relays:relay_begin",
        "relay.rounds = 1",
        "pass",
        *BY_HAND,
    ),
)
