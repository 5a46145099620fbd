"""JSON lines against the standard library's reader, and their limits."""

import base64
import json

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossipkv.dataset.formats._formats import JsonLines
from gossipkv.dataset.formats.json_lines import batches
from gossipkv.dataset.formats.reading import MAX_KEY_BYTES, MORE_MEMORY, FileReading
from gossipkv.errors import SourceError
from tests.oracle import json_lines as oracle
from tests.unit.dataset.formats.cut_reader import CutReader, everything

DEEPEST = 1024


def records(data, sizes=(1 << 18,), **options):
    """Return all records, and assert their offsets."""
    found, offsets = everything(batches(CutReader(data, sizes), FileReading(**options)))
    assert len(found) == len(offsets)
    assert all(offset == 0 or data[offset - 1 : offset] == b"\n" for offset in offsets)
    assert offsets == sorted(set(offsets))
    return found


def one(value, **options):
    """Return the served value for `value` in a line."""
    ((_, served),) = records(b'{"key": "k", "value": ' + value + b"}", **options)
    return served


def refused(line, **options):
    """Return the reason for which a wrong second line is refused."""
    good = b'{"key":"a","value":1}\n'
    with pytest.raises(SourceError) as caught:
        records(good + line + b"\n" + good, **options)
    details = caught.value.details
    assert (details["file"], details["line"], details["offset"]) == ("file", 2, len(good))
    assert str(caught.value) == f"file: line 2, byte {len(good)}: {details['reason']}"
    return details["reason"]


SPACES = st.sampled_from(["", "", "", " ", "\t", " \r"])
CHARACTERS = st.sampled_from(list('ab"\\/\b\f\n\r\t\0\x1f\x7fé€\U0001f600 {}[]:,'))


@st.composite
def strings(draw):
    """Draw a JSON string whose characters are written in any of their forms."""
    text = ""
    for character in draw(st.lists(CHARACTERS, max_size=20)):
        units = character.encode("utf-16-be")
        hexed = "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
        ways = [json.dumps(character)[1:-1], hexed, hexed.upper().replace("U", "u")]
        ways += [character] if character not in '"\\' and character >= " " else []
        ways += ["\\/"] if character == "/" else []
        text += draw(st.sampled_from(ways))
    return f'"{text}"'


BOUNDS = ["-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616"]
NUMBERS = st.sampled_from(["0", "7", *BOUNDS, "-0", "1.50", "1e400", "-12E-3", f"{10**30}", "7.0e+1"])
BASE64 = st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode())
WRAPPED = st.one_of(BASE64, BASE64.map(lambda text: text.replace("/", "\\/")), st.text("ab+/=", max_size=5)).map(
    lambda text: f'{{"base64": "{text}"}}'
)
SCALARS = st.one_of(strings(), NUMBERS, st.sampled_from(["true", "false", "null"]), WRAPPED)


def joined(draw, parts, brackets):
    inner = ",".join(draw(SPACES) + part + draw(SPACES) for part in parts)
    return brackets[0] + (inner or draw(SPACES)) + brackets[1]


@st.composite
def lists(draw, inner):
    return joined(draw, draw(st.lists(inner, max_size=3)), "[]")


@st.composite
def objects(draw, inner, names=None):
    members = draw(st.lists(st.tuples(strings() if names is None else names, inner), max_size=4))
    return joined(draw, [f"{name}{draw(SPACES)}:{draw(SPACES)}{value}" for name, value in members], "{}")


VALUES = st.recursive(SCALARS, lambda inner: st.one_of(lists(inner), objects(inner)), max_leaves=8)
NAMES = st.sampled_from(['"key"', '"value"', '"key"', '"value"', '"\\u006bey"', '"v\\u0061lue"', '"other"', '"KEY"'])


@st.composite
def good_lines(draw):
    """Draw a line that is a record, in many forms."""
    key = draw(st.one_of(strings(), BASE64.map(lambda text: f'{{"base64":"{text}"}}')))
    members = [(draw(st.sampled_from(['"key"', '"k\\u0065y"'])), key), ('"value"', draw(VALUES))]
    members += draw(st.lists(st.tuples(strings(), VALUES), max_size=2))
    members = draw(st.permutations(members))
    return joined(draw, [f"{name}{draw(SPACES)}:{draw(SPACES)}{value}" for name, value in members], "{}")


LINES = st.one_of(good_lines(), objects(VALUES, NAMES), st.sampled_from(["", " \t", "[]", "1", "{}", "{}x"]))
SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=4)


def compare(data, sizes):
    """Assert that reader and oracle give the same records or refuse the same line."""
    try:
        expected = oracle.records(data)
    except ValueError as error:
        with pytest.raises(SourceError) as caught:
            records(data, sizes)
        assert caught.value.details["line"] == error.args[0]
        assert caught.value.details["offset"] == sum(len(line) + 1 for line in data.split(b"\n")[: error.args[0] - 1])
    else:
        assert records(data, sizes) == expected


@given(st.lists(good_lines(), max_size=3).map("\n".join), SIZES)
@example('\ufeff{"key":"","value":""}', [1])
@example('{"key":"a","value":[ ]}\r\n\n{"key":"b","value":{"a" :[{ }]}}\r', [5])
def test_it_serves_what_the_oracle_serves(text, sizes):
    """Escapes, spaces, order of members and cuts of chunks vary."""
    compare(text.encode(), sizes)


@given(st.lists(LINES, max_size=4).map("\n".join), SIZES)
def test_it_refuses_what_the_oracle_refuses(text, sizes):
    """Fields are missing, repeated, null or of another kind."""
    compare(text.encode(), sizes)


@given(LINES, st.data())
def test_it_finds_damage_that_the_oracle_finds(text, data):
    """Bytes are dropped, repeated or replaced, and lines are cut."""
    line = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(line)))
        line[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b"e", b"\xff", b"\xc3",
                             b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\\ud83d", b"\\udc00", b"\\u12",
                             b"NaN", b"-Infinity", b" ", b"\x01", b"tru", b"\xe2\x82"])
        )  # fmt: skip
    compare(bytes(line), [len(line) + 1])


@pytest.mark.parametrize(
    ("written", "served"),
    [
        (b'"text"', b"text"),
        (b'""', b""),
        (b'"\\u00e9\\ud83d\\ude00\\n"', "é\U0001f600\n".encode()),
        (b'{ "base64" : "AP\\/\\/" }', b"\0\xff\xff"),
        (b'{"base64":""}', b""),
        (b'{"base64": 1}', b'{"base64":1}'),
        (b'{"base64":"AA==","x":1}', b'{"base64":"AA==","x":1}'),
        (b'{"base64":"AA==","base64":"AA=="}', b'{"base64":"AA==","base64":"AA=="}'),
        (b'[ 1.0, 1E400 , "a b\\" ]", {} ]', b'[1.0,1E400,"a b\\" ]",{}]'),
        (b"-0.10", b"-0.10"),
        (b"true", b"true"),
        (b'{"a": null, "a": NULL}'.replace(b"NULL", b"null"), b'{"a":null,"a":null}'),
    ],
)
def test_what_is_served_for_what_is_written(written, served):
    """The cases are the table of the documentation."""
    assert one(written) == served


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"key":"a"}', "the line has no field 'value'; if the value has another name, set `value`"),
        (b'{"value":"a"}', "the line has no field 'key'; if the key has another name, set `key`"),
        (b'{"key":"a","value":null}', "column 20: the value 'value' is null"),
        (b'{"key":null,"value":1}', "column 8: the key 'key' must be a string"),
        (b'{"key":7.0,"value":1}', "column 8: the key 'key' must be a string"),
        (b'{"key":"a","key":"a","value":1}', "column 12: the field 'key' occurs twice"),
        (b'{"key":"a","value":2,"valu\\u0065":1}', "column 22: the field 'value' occurs twice"),
        (b'{"key":"a","value":NaN}', "column 20: NaN and infinities are not JSON"),
        (b'{"key":"a","value":[-Infinity]}', "column 22: NaN and infinities are not JSON"),
        (b'{"key":"a","value":"\\ud800x"}', "column 21: half of a surrogate pair"),
        (b'{"key":"a","value":1,"x":"\\udc00"}', "column 27: half of a surrogate pair"),
        (b'{"key":"\xed\xa0\x80","value":1}', "column 9: the text is not UTF-8: '\\\\xed\\\\xa0"),
        (b'{"key":"a\tb","value":1}', "column 10: a string contains a control character"),
        (b'{"key":"\\x","value":1}', "column 9: JSON has no such escape"),
        (b'{"key":"a","value":{"base64":"A"}}', "column 20: the base64 of 'value' is malformed"),
        (b'{"key":{"base64":"_w=="},"value":1}', "column 8: the base64 of 'key' is malformed"),
        (b'[{"key":"a","value":1}]', "column 1: a line must be one JSON object"),
        (b'{"key":"a","value":1},', "column 22: more text follows the object: ','"),
        (b'{"key":"a","value":01}', "column 21: the text is not JSON from here on: '1}'"),
        (b'{"key":"a",', "the line ends within its JSON object"),
        (b"{", "the line ends within its JSON object"),
        (b"{'key':1}", "column 2: the text is not JSON from here on"),
        (b"key\tvalue", "column 1: a line must be one JSON object, not 'key"),
        (b"\xef\xbb\xbf{}", "column 1: a line must be one JSON object"),
    ],
)
def test_a_wrong_line_is_named(line, words):
    """The error has file, line, offset and column, and shows the input there."""
    assert refused(line).startswith(words.replace("\\\\", "\\"))


def test_other_fields_can_be_named():
    """Any names are possible, and both fields may be the same."""
    line = b'{"key":"no","id":"a","n":{"x":1},"value":null}'
    assert records(line, key="id", value="n") == [(b"a", b'{"x":1}')]
    assert records(line, key="id", value="id") == [(b"a", b"a")]
    assert records('{"schlüssel":"a","":"b"}'.encode(), key="schlüssel", value="") == [(b"a", b"b")]


def test_a_name_has_a_limit():
    """An escaped name is compared in a buffer of that size."""
    longest = "x" * 256
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in longest)
    assert records(f'{{"{escaped}":"a","value":""}}'.encode(), key=longest) == [(b"a", b"")]
    with pytest.raises(ValueError, match="at most 256 bytes"):
        JsonLines("x", 1, 1, longest + "x", "value")


def test_nesting_is_bounded():
    """Deeper nesting is an error and never ends the process."""
    assert one(b"[" * DEEPEST + b"]" * DEEPEST) == b"[" * DEEPEST + b"]" * DEEPEST
    mixed = b'{"a":[' * (DEEPEST // 2) + b"]}" * (DEEPEST // 2)
    assert one(mixed) == mixed
    for bomb in (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), b"[" * 1_000_000, b'{"a":' * 1_000_000):
        assert "nested deeper than 1,024" in refused(b'{"key":"k","value":' + bomb + b"}")


def test_the_limits_hold():
    """Keys, values and lines have limits; an overlong line is refused before it is read."""
    longest = b'{"key":"' + b"k" * MAX_KEY_BYTES + b'","value":"12345"}'
    assert records(longest, max_value_bytes=5) == [(b"k" * MAX_KEY_BYTES, b"12345")]
    assert refused(longest.replace(b'":"k', b'":"kk', 1)) == "the key has 65,536 bytes; the limit is 65,535 bytes"
    assert refused(longest, max_value_bytes=4) == "the value has 5 bytes; the limit is 4 bytes"
    assert one(b'"\\u0041\\u0041"', max_value_bytes=2) == b"AA"
    too_long = refused(b" " * 82, max_block_bytes=81)
    assert "the line has at least 82 bytes" in too_long
    assert too_long.endswith(f"the limit is 81 bytes; {MORE_MEMORY}")
    reader = CutReader(memoryview(bytes(1 << 24)))
    with pytest.raises(SourceError, match="the line has at least 1,048,576 bytes"):
        everything(batches(reader, FileReading(max_block_bytes=1_000_000)))
    assert reader.taken <= 1_000_000 + (2 << 18)


def test_many_lines_fill_batch_after_batch():
    """A chunk has more records than a batch; text decoded for one batch stays valid in the next."""
    data = b"".join(b'{"key":"%d","value":"\\u0041%d"}\n' % (number, number) for number in range(40_000))
    expected = [(b"%d" % number, b"A%d" % number) for number in range(40_000)]
    for sizes in ([1 << 18], [len(data)], [99_991, 1]):
        assert records(data, sizes) == expected


def test_blank_chunks_hold_nothing():
    """Chunks without a record must not make the batch grow."""
    assert records(b"\n" * 1_000_000 + b'{"key":"a","value":1}', [4096]) == [(b"a", b"1")]


# -- rows --------------------------------------------------------------------------------------------------------------


LINE = b'{"k":"a b", "n" :1.50,"o":{"x": [ 1 ]},"z":null,"\\u0065":"\\n"}'


def row(**options):
    ((key, value),) = records(LINE, **{"key": "k", **options})
    return key, value


def test_all_fields_are_a_row_as_they_are_written():
    """Numbers and escapes stay, space goes, and nulls are left out or stay."""
    assert row(value="*") == (b"a b", b'{"k":"a b","n":1.50,"o":{"x":[1]},"\\u0065":"\\n"}')
    assert row(value="*", nulls="null")[1] == b'{"k":"a b","n":1.50,"o":{"x":[1]},"z":null,"\\u0065":"\\n"}'
    assert records(b'{"k":1,"x":null}', key="k", value=("x",)) == [(b"1", b"{}")]


def test_some_fields_are_a_row():
    """They come in the order of the setting; a field that a line lacks is null."""
    assert row(value=("e", "n", "missing"))[1] == b'{"e":"\\n","n":1.50}'
    assert row(value=("z", "missing", "o"), nulls="null")[1] == b'{"z":null,"missing":null,"o":{"x":[1]}}'
    assert msgpack.unpackb(row(value="*", encoding="msgpack")[1]) == {"k": "a b", "n": 1.5, "o": {"x": [1]}, "e": "\n"}
    with pytest.raises(SourceError, match="MessagePack cannot encode the line"):
        records(b'{"k":"a","n":123456789012345678901234567890}', key="k", value="*", encoding="msgpack")


def test_keys_of_several_fields():
    line = b'{"a":"x\\u0041","b":-7,"c":true,"d":{"base64":"/w=="},"e":18446744073709551615,"value":1}'
    ((key, _),) = records(line, key=("a", "b", "c", "d", "e"))
    assert msgpack.unpackb(key) == ["xA", -7, True, b"\xff", 2**64 - 1]
    assert records(line, key=("a", "b", "c"), separator="--")[0][0] == b"xA---7--true"
    with pytest.raises(SourceError, match="the key 'a' contains the separator"):
        records(line, key=("a", "b"), separator="A")
    with pytest.raises(SourceError, match="the key 'value' must be a string"):
        records(line.replace(b'"value":1', b'"value":1e3'), key=("a", "value"))
    with pytest.raises(SourceError, match="no field 'nope'"):
        records(line, key=("a", "nope"))


def test_fields_of_directories():
    """A file's directories name fields of text; a field of the line comes first."""
    options = {"partition": (("k", "no"), ("country", 'D"E'), ("none", None))}
    assert row(value="*", **options)[1].endswith(b'"\\u0065":"\\n","country":"D\\"E"}')
    assert row(key=("country", "k"), value="n", separator=":", **options) == (b'D"E:a b', b"1.50")
    assert row(value="country", **options)[1] == b'D"E'


@given(st.lists(good_lines(), max_size=3).map("\n".join), SIZES)
def test_rows_read_back(text, sizes):
    """The standard library reads the same object from a row as from its line."""
    lines = [line for line in text.encode().split(b"\n") if line.strip(b" \t\r")]
    try:
        expected = [json.loads(line, object_pairs_hook=list) for line in lines]
        found = records(text.encode(), sizes, value="*", nulls="null")
    except SourceError:
        return
    assert [json.loads(value, object_pairs_hook=list) for _, value in found] == expected
