"""Files of every writer that is installed: counts and values, or the one error."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
from pyarrow import feather
from pyarrow import parquet as pq
from pyarrow.parquet import encryption

from gossipkv.dataset.formats import detect
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import SourceError
from tests.unit.dataset.formats.columns.real_writers import CASES, TABLE, Case, avro, check
from tests.unit.dataset.formats.cut_reader import CutReader, everything

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_files_of_real_writers_are_read(tmp_path: Path, case: Case) -> None:
    case.write(tmp_path / case.name, TABLE.select(case.columns))
    check(case, tmp_path / case.name)


def test_enough_writers_are_tried() -> None:
    assert len({case.name for case in CASES}) == len(CASES) > 60


class _Keys(encryption.KmsClient):
    """Keys that are encrypted with nothing."""

    def __init__(self, _: object) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64decode(key)


def encrypted(path: Path, *, plaintext_footer: bool) -> None:
    configuration = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["name"]}, plaintext_footer=plaintext_footer
    )
    factory = encryption.CryptoFactory(_Keys)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), configuration)
    table = TABLE.select(["id", "name"])
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


REFUSED = {
    "feather.1": (
        lambda path: feather.write_feather(TABLE.select(["id", "name"]), path, version=1),
        "a Feather file of version 1, which cannot be read",
    ),
    "lz4.avro": (lambda path: avro(path, TABLE.select(["id"]), "lz4"), "the codec 'lz4' is not supported"),
    "encrypted.parquet": (lambda path: encrypted(path, plaintext_footer=False), "the Parquet file is encrypted"),
    "columns.parquet": (lambda path: encrypted(path, plaintext_footer=True), "the Parquet file is encrypted"),
}


@pytest.mark.filterwarnings("ignore:Feather V1 files are deprecated")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused_by_name(tmp_path: Path, name: str) -> None:
    write, words = REFUSED[name]
    write(tmp_path / name)
    reader = CutReader((tmp_path / name).read_bytes(), name="part-0")
    options = FileReading("id", "*")
    with pytest.raises(SourceError, match=words):
        everything(detect.batches(str(detect.detect_file(reader, options)), reader, options))
