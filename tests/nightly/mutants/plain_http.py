"""Mutants of HTTP in the serving loop: what is plain, what is left to the gateway, and how an answer is said."""

from __future__ import annotations

from tests.nightly.mutants.mutant import planted

STREAMS = ("tests/unit/serving/test_http.py",)
READ = "gossipkv.serving._http_requests"
SAID = "gossipkv.serving._http_answers"

MUTANTS_OF_PLAIN_HTTP = (
    planted(
        "two hosts are one",
        f"{READ}:read_plain",
        "if meaning < 0 or seen & meaning or fields > MOST_FIELDS:",
        "if meaning < 0 or (seen & meaning & ~HOST) or fields > MOST_FIELDS:",
        *STREAMS,
    ),
    planted(
        "a header that is not known means nothing",
        f"{READ}:meaning_of",
        "return NONE if name.data[3] == 0x2D else STRANGE",
        "return NONE",
        *STREAMS,
    ),
    planted(
        "a line without a colon is waited for",
        f"{READ}:read_field",
        "return STRANGE if memchr(begin, 0x0A, end - begin) != NULL else NONE",
        "return NONE",
        *STREAMS,
    ),
    planted(
        "a value may have any byte",
        f"{READ}:read_field",
        "if has_control(begin, stop):",
        "if False:",
        *STREAMS,
    ),
    planted(
        "a database of the gateway's own name is read here",
        f"{READ}:read_target",
        "for i in range(HIDDEN):",
        "for i in range(HIDDEN - 1):",
        *STREAMS,
    ),
    planted(
        "what is escaped is the key",
        f"{READ}:put_key",
        "if plain.escapes == 0:",
        "if plain.escapes >= 0:",
        *STREAMS,
    ),
    planted(
        "the strange one is thrown away with what was answered",
        "gossipkv.serving._http_intake:take_plain",
        "connection.strange = connection.held = True",
        "connection.strange = connection.held = True\n            at = size",
        *STREAMS,
    ),
    planted(
        "a connection is detached before all is answered",
        "gossipkv.serving._connections:Connections.may_detach",
        "return not connection.doomed and owed_count(connection.owing) == 0 and buffer_size(&connection.output) == 0",
        "return not connection.doomed and buffer_size(&connection.output) == 0",
        *STREAMS,
    ),
    planted(
        "whoever says close is kept",
        "gossipkv.serving._http_intake:end_behind",
        "connection.broken = True",
        "return",
        *STREAMS,
    ),
    planted(
        "a part begins one byte late",
        f"{SAID}:choose_part",
        "first[0] = max(size - owed.last, <int64_t>0)",
        "first[0] = max(size - owed.last + 1, <int64_t>0)",
        *STREAMS,
    ),
    planted(
        "a tag is known by its version alone",
        f"{SAID}:is_known",
        "return at[said.origin.size + 1] == 0x2D and memcmp(at + said.origin.size + 2, checksum, 8) == 0",
        "return True",
        *STREAMS,
    ),
    planted(
        "HEAD has a body",
        f"{SAID}:put_missing",
        "if is_head:",
        "if False:",
        *STREAMS,
    ),
    planted(
        "what was noted of the next request answers this one",
        f"{SAID}:read_note",
        "cdef const uint8_t* at = owing.notes.data + owing.notes.start",
        "cdef const uint8_t* at = owing.notes.data + owing.notes.end - owed_of(owing, owed_count(owing) - 1).note_size",
        *STREAMS,
    ),
)
