"""Mutants of RESP: the order of answers, how they are said, what is owed, and what is counted of it."""

from __future__ import annotations

from tests.nightly.mutants.mutant import planted

TALK = ("tests/unit/serving/test_resp.py",)
ELSEWHERE = ("tests/unit/serving/test_resp_forwarding.py",)
ANSWERS = "gossipkv.serving._resp_answers"

MUTANTS_OF_RESP = (
    planted(
        "an answer is said before its turn",
        "gossipkv.serving._owed:say_answers",
        "if id == 0 and owed.parts == 1:",
        "if owed.parts == 1:",
        *ELSEWHERE,
    ),
    planted(
        "null as the connection has it now, not as it had when it asked",
        f"{ANSWERS}:say_value",
        "put_null(out, owed.protocol)",
        "put_null(out, (<Resp*>owing).protocol)",
        *TALK,
    ),
    planted(
        "only the first part of a command may fail",
        f"{ANSWERS}:say",
        "if not take_nil(&results[i]):",
        "if not take_nil(&results[i]) and i == 0:",
        *ELSEWHERE,
    ),
    planted(
        "a part of a value counts from its front alone",
        f"{ANSWERS}:put_one",
        "first = max(owed.first + value.size if owed.first < 0 else owed.first, <int64_t>0)",
        "first = max(owed.first, <int64_t>0)",
        *TALK,
    ),
    planted(
        "gets that had no room are owed twice",
        "gossipkv.serving._requests:answer_gathered",
        "take_back(connection.owing, entry.request.msgid)",
        "pass",
        *ELSEWHERE,
    ),
    planted(
        "a connection may begin in any protocol and get lines",
        "gossipkv.serving._resp_intake:is_foreign",
        "if data[0] >= FIX_MAP:",
        "if data[0] > 0xFF:",
        *TALK,
    ),
    planted(
        "one database more than there are",
        "gossipkv.serving._resp_commands:take_word_of_connection",
        "elif not 0 <= number <= core.resp_name_count:",
        "elif not 0 <= number <= core.resp_name_count + 1:",
        *TALK,
    ),
    planted(
        "a run of keys goes on into the next database",
        "gossipkv.serving._resp_commands:count_runs",
        "former = database",
        "pass",
        *TALK,
    ),
    planted(
        "what waits for earlier answers is not counted",
        "gossipkv.serving._connections:Connections.say",
        "note_owed(self, connection, owing_bytes(owing))",
        "pass",
        *TALK,
    ),
    planted(
        "who waits for an earlier answer counts as one that does not read",
        "gossipkv.serving._connections:Connections.say",
        "connection.blocked_ms = 0",
        "pass",
        *TALK,
    ),
)
