"""Signs of other dialects in tab-separated text."""

import csv
import io

import pytest

from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.formats.tsv_signs import signs
from tests.unit.dataset.formats.compressed import COMPRESS
from tests.unit.dataset.formats.cut_reader import CutReader

HEADER = "the first line looks like a header"
QUOTED = "keys or values look quoted"
INDEX = "the first column looks like an index"
NULL = "a field is \\N, which other programs write for null"


def written(rows, **options):
    target = io.StringIO()
    csv.writer(target, delimiter="\t", lineterminator="\n", **options).writerows(rows)
    return target.getvalue().encode()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\tuser_id\tname\n0\tu1\tAda\n1\tu2\tBob\n2\tu3\tEve\n", [HEADER, INDEX]),
        (b"user_id\tname\nu1\tAda\n", [HEADER]),
        (b"key\tvalue\r\na\tb\r\n", [HEADER]),
        (b"\xef\xbb\xbfcity\tpeople\n" + b"".join(b"%d\t%d\n" % (at * 7, at) for at in range(9)), [HEADER]),
        (b"0\tx\n1\ty\n2\tz\n", [INDEX]),
        (written([["a", "b"], ["c", "d"]], quoting=csv.QUOTE_ALL), [QUOTED]),
        (written([["a", 'he said "no"\t'], ["c", "d"]]), [QUOTED]),
        (b"a\tb\nc\t\\N\n", [NULL]),
        (b"paris\t48.9 2.4\nlima\t-12 -77\n", []),
        (b'paris\t"48.9"\nlima\t"-12"\n', []),
        (b"7\tx\n1\ty\n2\tz\n", []),
        (b"id\t48.9\nname\tx y\n", []),
        (b"\n\n", []),
        (b"no tab at all\n", []),
        (b"a\tb\ncaf\xe9\tf\xfcnf\n", ["line 2 is not UTF-8"]),
        (b"a\tb\n\xe9\x01\tbytes\n", []),
        ("é\t".encode() * 3000, []),
        (b"a\t" + b"x" * 5000, []),
    ],
)
def test_signs(data, expected):
    assert signs(CutReader(data), FileReading()) == expected
    assert signs(CutReader(COMPRESS[".gz"](data), name="part.tsv.gz"), FileReading()) == expected
