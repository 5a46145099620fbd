"""The examples of docs/users/offline-builds.md run as printed and write the right records."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from gossipkv.dataset import partition_of
from gossipkv.dataset.source.declared_partitions import read_declared
from gossipkv.storage.sorted_file import SortedFile
from tests.unit.dataset.formats.cut_reader import CutReader

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "users" / "offline-builds.md").read_text(encoding="utf-8")


def test_the_example_writes_a_version(tmp_path):
    """Every record is in its partition's file, and `_SUCCESS` is there."""
    source, version = tmp_path / "source", tmp_path / "root" / "geo" / "v1"
    source.mkdir()
    records = {f"key {n}".encode(): f"välue {n}\tb".encode() for n in range(500)}
    lines = [key + b"\t" + value + b"\n" for key, value in records.items()]
    for number in range(3):
        (source / f"{number}.tsv").write_bytes(b"".join(lines[number::3]))
    (example,) = re.findall(r"```python multiprocessing\n(.*?)```", PAGE, re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(source), str(version)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "records=500" in done.stdout
    assert sorted(path.name for path in version.iterdir()) == [
        "_PARTITIONS.json", "_SUCCESS", *(f"part-0000{partition}.gkv" for partition in range(4))
    ]  # fmt: skip
    found = {}
    for partition in range(4):
        with SortedFile(version / f"part-0000{partition}.gkv") as file:
            assert {partition_of(key, 4) for key, _ in file.scan()} == {partition}
            found |= dict(file.scan())
    assert found == records


def test_the_declaration_of_the_page_is_one():
    """The declaration parses, with the content that the page states."""
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    declared = read_declared(CutReader(example.encode()))
    assert (declared.files["part-00002"], declared.files["part-00003"]) == ((1,), ())
    assert json.loads(example)["function"] == declared.function
