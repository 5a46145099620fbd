"""A build reads exactly the listed files, checked against Hadoop's checksums where there are any."""

import os
import random
import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.source import hadoop_checksums
from gossipkv.dataset.source import reader as source_reader
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.dataset.source.reader import CHUNK_BYTES, SourceReader
from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import READ
from gossipkv.errors import SourceChanged, SourceError, StorageError
from tests.world.faulty_files import Action, Fault, FaultyFiles

FILES = RealFiles()


def put(path, data=b"a\tb\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def chunks(files, file):
    with SourceReader(files, file) as reader:
        yield from reader.chunks()


def crc_file(data, each=512):
    pieces = [data[at : at + each] for at in range(0, len(data), each)]
    return b"crc\0" + struct.pack(">I", each) + b"".join(struct.pack(">I", zlib.crc32(piece)) for piece in pieces)


def listed(tmp_path, data):
    put(tmp_path / "db" / "v" / "part-0", data)
    return tmp_path / "db" / "v" / "part-0", SourceRoot(tmp_path, FILES).version("db", "v").files[0]


def test_a_file_is_read_in_chunks(tmp_path):
    """Chunks are bounded and in order."""
    data = random.randbytes(3 * CHUNK_BYTES + 5)
    _, file = listed(tmp_path, data)
    parts = list(chunks(FILES, file))
    assert [len(part) for part in parts] == [CHUNK_BYTES] * 3 + [5]
    assert b"".join(parts) == data


@pytest.mark.parametrize("moment", ["before", "while"])
@pytest.mark.parametrize("change", ["longer", "shorter", "touched", "gone", "fifo"])
def test_a_file_that_changes_is_noticed(tmp_path, change, moment):
    path, file = listed(tmp_path, b"x" * (2 * CHUNK_BYTES))

    def strike():
        if change == "longer":
            put(path, b"x" * (3 * CHUNK_BYTES))
        elif change == "shorter":
            put(path, b"x")
        elif change == "touched":
            os.utime(path, ns=(1, 1))
        else:
            path.unlink()
            if change == "fifo":
                os.mkfifo(path)

    reading = chunks(FILES, file)
    if moment == "while":
        next(reading)
    strike()
    with pytest.raises(SourceChanged, match="changed while the version was read"):
        list(reading)


@pytest.mark.parametrize("kind", ["stat", "open", "pread"])
def test_a_source_that_refuses_is_an_error_that_names_the_file(tmp_path, kind):
    """The error is neither a change nor damage."""
    path, file = listed(tmp_path, b"x")
    faulty = FaultyFiles(FILES, Fault(0, Action.FAIL, kinds={kind}))
    with pytest.raises(StorageError, match="Input/output error") as caught:
        list(chunks(faulty, file))
    assert caught.value.details["file"] == str(path)


def test_a_link_put_there_after_the_look_is_not_followed(tmp_path):
    """The file was resolved when it was listed."""
    path, file = listed(tmp_path, b"x")
    put(tmp_path / "secret", b"y")
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(SourceChanged):
        list(chunks(FILES, replace(file)))
    assert source_reader.READ_SOURCE != READ


def checked(tmp_path, data, crc):
    """Write a file with a checksum file; return its path and its listing."""
    put(tmp_path / "db" / "v" / ".part-0.crc", crc)
    return listed(tmp_path, data)


def test_a_range_is_read_exactly_or_refused(tmp_path):
    """The ends can be read; bytes that never existed are an error, and lost ones a change."""
    path, file = listed(tmp_path, b"0123456789")
    with SourceReader(FILES, file) as reader:
        assert (reader.name, reader.size_bytes) == (str(path), 10)
        assert reader.read_at(0, 10) == b"0123456789"
        assert reader.read_at(3, 4) == b"3456"
        assert reader.read_at(10, 0) == b""
        assert reader.read_bytes == 14
        with pytest.raises(SourceError, match="byte 9: 2 bytes are needed here, but the file ends at byte 10"):
            reader.read_at(9, 2)
    reading = SourceReader(FILES, file).__enter__()
    os.truncate(path, 4)
    with pytest.raises(SourceChanged, match="ends at byte 4"):
        reading.read_at(3, 4)
    with pytest.raises(SourceChanged):
        reading.__exit__(None, None, None)


def test_what_is_read_is_paced_before_it_is_handed_out(tmp_path):
    """Chunks from the middle are paced as well."""
    _, file = listed(tmp_path, b"x" * (CHUNK_BYTES + 7))
    paced = []
    with SourceReader(FILES, file, pace=paced.append) as reader:
        assert [len(chunk) for chunk in reader.chunks(CHUNK_BYTES - 1)] == [1, 7]
    assert paced == [1, 7]


def test_a_change_explains_what_could_not_be_read(tmp_path):
    """If the file was overwritten, a format's complaint becomes a change of the source."""
    path, file = listed(tmp_path, b"one\ttwo")
    reading = SourceReader(FILES, file).__enter__()
    put(path, b"others")
    with pytest.raises(SourceChanged):
        reading.__exit__(SourceError, SourceError("no TAB"), None)
    _, file = listed(tmp_path, b"one\ttwo")
    with pytest.raises(SourceError, match="no TAB") as caught, SourceReader(FILES, file):
        raise SourceError("no TAB")
    assert not isinstance(caught.value, SourceChanged)


def test_another_tag_is_a_change(tmp_path):
    """The tag decides where a store has one, although size and time are equal."""
    _, file = listed(tmp_path, b"x")
    with pytest.raises(SourceChanged, match="its tag differs"), SourceReader(FILES, replace(file, tag="t")):
        pass


@given(st.binary(max_size=3_000), st.integers(1, 700), st.data())
def test_ranges_under_checksums_are_what_was_written(tmp_path_factory, data, each, draw):
    """Odd ranges and odd sizes of pieces give the same bytes as without checksums."""
    _, file = checked(tmp_path_factory.mktemp("crc"), data, crc_file(data, each))
    assert file.checksums is not None
    begin = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(begin, len(data)))
    with SourceReader(FILES, file) as reader:
        assert reader.read_at(begin, end - begin) == data[begin:end]
        assert b"".join(reader.chunks(begin)) == data[begin:]


@given(st.binary(min_size=1, max_size=3_000), st.integers(1, 700), st.data())
def test_every_flipped_byte_is_found(tmp_path_factory, data, each, draw):
    """The error has the place of the piece, for any range; other pieces are still read."""
    at = draw.draw(st.integers(0, len(data) - 1))
    wrong = data[:at] + bytes([data[at] ^ 1 << draw.draw(st.integers(0, 7))]) + data[at + 1 :]
    path, file = checked(tmp_path_factory.mktemp("crc"), wrong, crc_file(data, each))
    begin = draw.draw(st.integers(0, at))
    end = draw.draw(st.integers(at + 1, len(data)))
    piece = at - at % each
    with SourceReader(FILES, file) as reader:
        with pytest.raises(SourceError, match=r"byte [\d,]+: the data are damaged: the CRC-32 is") as caught:
            reader.read_at(begin, end - begin)
        assert caught.value.details["file"] == str(path)
        assert caught.value.details["offset"] == piece
        if piece > 0:
            assert reader.read_at(piece - 1, 1) == data[piece - 1 : piece]
        if piece + each < len(data):
            assert reader.read_at(piece + each, 1) == data[piece + each : piece + each + 1]


def test_a_flip_beside_what_is_asked_for_is_found_too(tmp_path):
    """The bytes under one checksum are handed out only if all are right."""
    data = bytes(2_000)
    _, file = checked(tmp_path, b"\x01" + data[1:], crc_file(data))
    with SourceReader(FILES, file) as reader, pytest.raises(SourceError, match="byte 0:"):
        reader.read_at(511, 1)


def test_a_large_checksum_file_is_read_in_parts(tmp_path):
    """64 KiB are read at a time, each part once when the data is read in order."""
    data = random.randbytes(40_000)
    path, file = checked(tmp_path, data, crc_file(data, 1))

    class Watched(RealFiles):
        def pread(self, descriptor, size_bytes, offset):
            part = super().pread(descriptor, size_bytes, offset)
            if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".crc"):
                read.append(len(part))
            return part

    read = []
    assert b"".join(chunks(Watched(), file)) == data
    assert max(read) <= hadoop_checksums.WINDOW * 4
    assert sum(read) == 8 + 4 * len(data)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("crc", "said"),
    [
        (b"", "begins with b''"), (b"crc", "begins with b'crc'"), (b"CRC\0" + bytes(8), "begins with b'CRC"),
        (b"crc\0\0\0\0\0" + bytes(4), "claims 0 bytes for each"),
        (b"crc\0\xff\xff\xff\xff" + bytes(4), "claims 4,294,967,295 bytes for each"),
        (b"crc\0\0\0\2\0", "has 8 bytes, but the checksums of 9 bytes, one for each 512 bytes, need 12"),
        (b"crc\0\0\0\2\0" + bytes(8), "has 16 bytes"), (b"crc\0\0\0\2\0" + bytes(3), "has 11 bytes"),
    ],
)  # fmt: skip
def test_a_checksum_file_that_is_none_is_an_error_of_the_file(tmp_path, crc, said):
    """The fault is magic, size or length; the error names both files and the remedy."""
    path, file = checked(tmp_path, b"a\tparis\r\n", crc)
    with pytest.raises(SourceError, match="delete it or write the data again") as caught, SourceReader(FILES, file):
        pass
    assert said in str(caught.value)
    assert str(path.with_name(".part-0.crc")) in str(caught.value)
    assert caught.value.details["file"] == str(path)


def test_no_bytes_have_a_checksum_file_of_a_header(tmp_path):
    """Hadoop writes such a file for an empty part."""
    _, file = checked(tmp_path, b"", crc_file(b""))
    assert list(chunks(FILES, file)) == []


@pytest.mark.parametrize("moment", ["before", "while"])
def test_a_checksum_file_that_changes_is_a_change(tmp_path, moment):
    """The version is then listed and read again."""
    data = b"x" * (2 * CHUNK_BYTES)
    path, file = checked(tmp_path, data, crc_file(data))
    reading = chunks(FILES, file)
    if moment == "while":
        next(reading)
    path.with_name(".part-0.crc").unlink()
    with pytest.raises(SourceChanged, match=r"\.part-0\.crc: the file changed"):
        list(reading)


def test_without_its_checksum_file_a_version_is_another_listing(tmp_path):
    """A version that failed is tried again after the deletion; its digest is the same."""
    path, _ = checked(tmp_path, b"x", b"nonsense")
    before = SourceRoot(tmp_path, FILES).version("db", "v")
    assert before.files[0].checksums.path == str(path.with_name(".part-0.crc"))
    path.with_name(".part-0.crc").unlink()
    after = SourceRoot(tmp_path, FILES).version("db", "v")
    assert after.digest == before.digest
    assert after.fingerprint != before.fingerprint
