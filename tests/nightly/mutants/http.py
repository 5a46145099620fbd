"""Bugs planted in what HTTP asks and answers: keys, conditions, framing, statuses."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

HTTP = "gossipkv.http"
TESTS = "tests/unit/http"

MUTANTS_OF_HTTP: tuple[Mutant, ...] = (
    planted(
        "a plus in a key is a space",
        f"{HTTP}.target:parse",
        "return Target(path, name or None, unquote_to_bytes(key) if slash else None, _options(query))",
        'return Target(path, name or None, unquote_to_bytes(key.replace(b"+", b" ")) if slash else None, {})',
        f"{TESTS}/test_target.py",
    ),
    planted(
        "an escape that is none is let pass",
        f"{HTTP}.target:_check_escapes",
        "if (bad := _ESCAPE.search(raw)) is not None:",
        "if (bad := None):",
        f"{TESTS}/test_target.py",
    ),
    planted(
        "headers of another version of HTTP are known",
        f"{HTTP}.exchange:Exchange._read_head",
        'if event.http_version == b"1.1" and len(fields) <= _MOST_KNOWN_BYTES:  # If it is the last, no other comes.',
        "if len(fields) <= _MOST_KNOWN_BYTES:",
        f"{TESTS}/test_exchange.py",
    ),
    planted(
        "known headers make any line right",
        f"{HTTP}.exchange:Exchange._read_head",
        "if fields == self._known_fields and (plain := _PLAIN_LINE.fullmatch(line)) is not None:",
        r'if fields == self._known_fields and (plain := re.match(rb"(\S+) +(\S+)", line)) is not None:',
        f"{TESTS}/test_exchange.py",
    ),
    planted(
        "a weak tag holds for If-Match",
        f"{HTTP}.conditions:is_among",
        'return tag in listed or (weakly and b"W/" + tag in listed)',
        'return tag in listed or b"W/" + tag in listed',
        f"{TESTS}/test_conditions.py",
    ),
    planted(
        "If-Modified-Since counts beside If-None-Match",
        f"{HTTP}.conditions:_is_known",
        "return is_among(found.tag, tags, weakly=True)",
        "if is_among(found.tag, tags, weakly=True): return True",
        f"{TESTS}/test_conditions.py",
    ),
    planted(
        "parts are sent though the value has changed",
        f"{HTTP}.conditions:_is_unchanged",
        "if validator is None or validator.strip() == found.tag:",
        "if True:",
        f"{TESTS}/test_conditions.py",
    ),
    planted(
        "any number of parts is sent",
        f"{HTTP}.ranges:_asked",
        "return asked if 0 < len(asked) <= MAX_RANGES else None",
        "return asked or None",
        f"{TESTS}/test_conditions.py",
    ),
    planted(
        "a part ends a byte early",
        f"{HTTP}.conditions:_parts",
        "return Answer(206, [*about, *found.headers()], found.value[part.first : part.last + 1])",
        "return Answer(206, [*about, *found.headers()], found.value[part.first : part.last])",
        f"{TESTS}/test_conditions.py",
    ),
    planted(
        "both lengths are taken",
        f"{HTTP}.exchange:Exchange._read_head",
        'if b"content-length" in headers and b"transfer-encoding" in headers:',
        "if False:",
        f"{TESTS}/test_exchange.py",
    ),
    planted(
        "a folded header is taken",
        f"{HTTP}.exchange:Exchange._judge_head",
        "if _FOLD.search(head) is not None:",
        "if False:",
        f"{TESTS}/test_exchange.py",
    ),
    planted(
        "what comes behind a body is lost",
        f"{HTTP}.exchange:Exchange._next_body",
        "self._buffer += body.judge.trailing_data[0]",
        "pass",
        f"{TESTS}/test_exchange.py",
    ),
    planted(
        "an empty piece ends a body in chunks",
        f"{HTTP}.exchange:Exchange.body",
        "if self._is_bodiless or not piece:",
        "if self._is_bodiless:",
        f"{TESTS}/test_exchange.py",
    ),
    planted(
        "the last answer does not say so",
        f"{HTTP}.exchange:Exchange.head",
        "if is_last:",
        "if False:",
        f"{TESTS}/test_exchange.py",
    ),
    planted(
        "a proxied request is forwarded",
        f"{HTTP}.read_options:read_options",
        'wire["local"] = True',
        'wire["local"] = False',
        f"{TESTS}/test_reads.py",
    ),
    planted(
        "a peer is told that a database has no such key",
        f"{HTTP}.read_context:refused",
        "case UnknownDatabase() if is_proxied:",
        "case UnknownDatabase() if False:",
        f"{TESTS}/test_reads.py",
    ),
    planted(
        "a gateway alone steps back",
        f"{HTTP}.read_context:read_from",
        "context.session.saw(database, told)",
        "pass",
        f"{TESTS}/test_reads.py",
    ),
    planted(
        "a miss does not name its version",
        f"{HTTP}.reads:read_one",
        "return Answer(404, [*missing.headers, *about], missing.body)",
        "return missing",
        f"{TESTS}/test_reads.py",
    ),
    planted(
        "a scan goes on in another version",
        f"{HTTP}.scans:_lines",
        "if isinstance(origin, str) and page.origin != origin:",
        "if False:",
        f"{TESTS}/test_scans.py",
    ),
    planted(
        "a limit is of each page", f"{HTTP}.scans:_lines", "left -= len(page.records)", "pass", f"{TESTS}/test_scans.py"
    ),
)
