"""Detection of formats by magic number, by name and by the first line."""

import gzip
import lzma
import pickle
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.formats import detect, json_lines
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import SourceError
from gossipkv.settings.databases import FORMATS
from tests.unit.dataset.formats.compressed import COMPRESS, snappy
from tests.unit.dataset.formats.cut_reader import CutReader, everything

RDD = b'SEQ\6!org.apache.hadoop.io.NullWritable"org.apache.hadoop.io.BytesWritable\0\0'
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
        ("part-0", b"PARE\x80\0\0\0\xd4", "parquet"),
        ("part-0", b"PAR1\x80\0\0\0\xd4", "parquet"),
        ("part-0", b"\xff\xff\xff\xff\0\2\0\0\x10", "arrow"),
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
    """Magic wins over the name, and the name over the first line."""
    assert detect.detect_file(CutReader(head, name=name), FileReading()) == expected
    assert expected in FORMATS


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_text_is_looked_into(suffix):
    """The decompressed first line decides."""
    for data, expected in ((JSON * 3000, "json"), (b"a\tb\n" * 9000, "tsv"), (b"", None), (b"\n\n", None)):
        reader = CutReader(COMPRESS[suffix](data), name=f"part-0{suffix}")
        assert detect.detect_file(reader, FileReading()) == expected
    with pytest.raises(SourceError, match=r"part-0\.gz: byte 0: the gzip data are damaged"):
        detect.detect_file(CutReader(b"no gzip member", name="part-0.gz"), FileReading())


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", "-frame.lz4"])
def test_a_compression_is_known_without_its_extension(suffix):
    """The first bytes decide, whatever the name says, and the decompressed content is read."""
    for name in ("part-0", "part-0.tsv", "part-0.gz"):
        for data, form in ((JSON, "json"), (b"a\tb\n", "tsv")):
            reader = CutReader(COMPRESS[suffix](data), name=name)
            assert detect.detect_file(reader, FileReading()) == ("tsv" if name.endswith("tsv") else form)
            assert everything(detect.batches(form, reader, FileReading()))[0] in ([(b"a", b"1")], [(b"a", b"b")])


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (lzma.compress(b"a\tb\n"), "the compression .xz cannot be read"),
        (b"PK\x03\x04\x14\0\0\0\x08\0", "a zip archive .such as .xlsx"),
        (gzip.compress(b"PK\x03\x04\x14\0\0\0\x08\0", mtime=0), "a zip archive .such as .xlsx"),
        *((pickle.dumps(["a\tb"], protocol), "a Python pickle") for protocol in range(6)),
        (RDD, "an RDD of pickled or serialized objects"),
        (b"\x93NUMPY\x01\0v\0", "a NumPy array"),
        (gzip.compress(b"a" * 257 + b"ustar", mtime=0), "a tar archive"),
        (snappy(b"a\tb\n"), "the format is unknown"),
        (zlib.compress(b"a\tb\n"), "the format is unknown"),
        (b"a\tb\0\n", "the format is unknown: the file is not UTF-8 text and begins with 'a.tb"),
        (b"caf\xe9\tb\n", "the format is unknown"),
        (gzip.compress(b"\x80\tb\n", mtime=0), 'set format = "tsv"'),
        (b"a\xc3", "the format is unknown"),
    ],
)
def test_what_is_no_text_is_not_taken_for_text(data, what):
    """A known format is named in the refusal; a setting may declare lines of bytes."""
    reader = CutReader(data, name="part-0")
    with pytest.raises(SourceError, match=f"^part-0: byte 0: .*{what}"):
        detect.detect_file(reader, FileReading())


@pytest.mark.parametrize("text", ["é".encode() * 3000, b"x" + "é".encode() * 3000, b"ORC\t1\n", b"Obj\t1\n"])
def test_text_is_told_by_its_beginning(text):
    """A character cut at the end of the sample is no fault; text may begin like another format's magic."""
    assert detect.detect_file(CutReader(text, name="part-0"), FileReading()) == "tsv"


@given(data=st.binary(min_size=1, max_size=200), suffix=st.sampled_from(["-frame.lz4", ".bz2", ".gz", ".zst"]))
def test_no_compressed_bytes_are_served_as_records(data, suffix):
    """A small file without an extension is read as its content, or refused."""
    reader = CutReader(COMPRESS[suffix](data), name="part-0")
    try:
        form = detect.detect_file(reader, FileReading())
        found = None if form is None else everything(detect.batches(form, reader, FileReading()))
    except SourceError:
        return
    assert found is None or found == everything(detect.batches(form, CutReader(data, name="part-0"), FileReading()))


def test_a_file_that_says_nothing_is_of_any_format():
    """Jobs write empty files among others."""
    assert detect.detect_file(CutReader(b"", name="part-0"), FileReading()) is None
    assert detect.detect_file(CutReader(b"", name="part-0.json"), FileReading()) == "json"
    assert detect.detect_file(CutReader(JSON, name="part-0"), FileReading()) == "json"


def test_each_format_has_its_reader():
    """Readers go by their names in the settings, and are imported only then."""
    reader = CutReader(gzip.compress(JSON), name="part-0.gz")
    assert everything(detect.batches("json", reader, FileReading())) == ([(b"a", b"1")], [0])
    assert everything(detect.batches("tsv", CutReader(b"a\tb"), FileReading())) == ([(b"a", b"b")], [0])
    for form in ("parquet", "sequence"):
        with pytest.raises(SourceError):
            everything(detect.batches(form, CutReader(b"nonsense of any length" * 9), FileReading()))


def test_any_exception_of_a_reader_is_one_error(monkeypatch):
    """A library may raise what it likes; the error names the file."""

    def batches(reader, options):
        yield from ()
        raise AttributeError("dictionary")

    monkeypatch.setattr(json_lines, "batches", batches)
    with pytest.raises(SourceError, match=r"^part-0: byte 0: the reader of json failed: AttributeError: dictionary$"):
        everything(detect.batches("json", CutReader(JSON, name="part-0"), FileReading()))


def test_a_missing_library_is_named(monkeypatch):
    """Only Parquet needs pyarrow; the error says which extra to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "gossipkv.dataset.formats.columns.parquet", raising=False)
    with pytest.raises(SourceError, match=r"part-0: .*`pip install 'gossipkv\[parquet\]'`"):
        everything(detect.batches("parquet", CutReader(b"PAR1", name="part-0"), FileReading()))
