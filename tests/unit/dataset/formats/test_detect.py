"""Formats by magic number, by name, by the first line."""

import gzip
import sys

import pytest

from gossipkv.dataset.formats import detect
from gossipkv.dataset.formats.reading import Reading
from gossipkv.errors import SourceError
from gossipkv.settings.databases import FORMATS
from tests.unit.dataset.formats.compressed import COMPRESS
from tests.unit.dataset.formats.cut_reader import CutReader, everything

JSON = b'{"key":"a","value":1}\n'


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("part-0", b"SEQ\x06\x19org", "sequence"),
        ("part-0.tsv", b"SEQ\x05", "sequence"),
        ("part-0", b"SEQ\t1\n", "tsv"),
        ("part-0", b"SEQUENCE\t1\n", "tsv"),
        ("part-0.snappy.parquet", b"PAR1\x15\x04", "parquet"),
        ("part-0.gz", b"PAR1\x15\x04", "parquet"),
        ("part-0", b"PARE\x15\x04", "parquet"),
        ("part-0", b"PAR1\tx\n", "tsv"),
        ("0.gkv", b"GKVSORT\n\x01", "sorted"),
        ("part-0", b"GKVSORT\n", "sorted"),
        ("part-0.parquet", b"PA", "parquet"),
        ("a.JSON", b"", "json"),
        ("a.jsonl.gz", gzip.compress(b"x", mtime=0), "json"),
        ("a.ndjson", b"x", "json"),
        ("a.tsv", JSON, "tsv"),
        ("a.txt", JSON, "json"),
        ("a", b'\xef\xbb\xbf \r\n { "key":1}', "json"),
        ("a", b"{}\n", "json"),
        ("a", b"{a}\tb\n", "tsv"),
        ("a", b"key\tvalue\n", "tsv"),
    ],
)  # fmt: skip
def test_a_format_is_told(name, head, expected):
    """Magic before the name, the name before the first line."""
    assert detect.detect_file(CutReader(head, name=name), Reading()) == expected
    assert expected in FORMATS


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_text_is_looked_into(suffix):
    """Its first line tells JSON, as in a file that is not compressed."""
    for data, expected in ((JSON * 3000, "json"), (b"a\tb\n" * 9000, "tsv"), (b"", None), (b"\n\n", None)):
        reader = CutReader(COMPRESS[suffix](data), name=f"part-0{suffix}")
        assert detect.detect_file(reader, Reading()) == expected
    with pytest.raises(SourceError, match=r"part-0\.gz: byte 0: damaged gzip data"):
        detect.detect_file(CutReader(b"no", name="part-0.gz"), Reading())


def test_a_file_that_says_nothing_is_of_any_format():
    """Jobs write empty files among others."""
    assert detect.detect_file(CutReader(b"", name="part-0"), Reading()) is None
    assert detect.detect_file(CutReader(b"", name="part-0.json"), Reading()) == "json"
    assert detect.detect_file(CutReader(JSON, name="part-0"), Reading()) == "json"


def test_each_format_has_its_reader():
    """By the name that settings have for it, and imported only then."""
    reader = CutReader(gzip.compress(JSON), name="part-0.gz")
    assert everything(detect.batches("json", reader, Reading())) == ([(b"a", b"1")], [0])
    assert everything(detect.batches("tsv", CutReader(b"a\tb"), Reading())) == ([(b"a", b"b")], [0])
    for form in ("parquet", "sequence"):
        with pytest.raises(SourceError):
            everything(detect.batches(form, CutReader(b"nonsense of any length" * 9), Reading()))


def test_a_missing_library_is_named(monkeypatch):
    """Parquet alone needs pyarrow; the error says what to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SourceError, match=r"part-0: .* pip install 'gossipkv\[parquet\]'"):
        everything(detect.batches("parquet", CutReader(b"PAR1", name="part-0"), Reading()))
