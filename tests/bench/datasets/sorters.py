"""What others make of the same records: gzipped lines read, sorted by key, written and synced, in a process of its own.

    python -m tests.bench.datasets.sorters NAME SOURCE TARGET

None of them reads SequenceFiles, verifies partitions, makes an index or bounds its memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

COLUMNS = ("key", "value")
SHELL = 'for part in "$0"/*.gz; do zcat "$part" | LC_ALL=C sort -o "$1/$(basename "$part")" && sync "$1"/*; done'


def polars(source: Path, target: Path) -> None:
    """Each file becomes one of Arrow."""
    import_module("polars").read_csv(
        source, separator="\t", has_header=False, quote_char=None, new_columns=list(COLUMNS), infer_schema=False
    ).sort("key").write_ipc(target, compression="uncompressed")


def duckdb(source: Path, target: Path) -> None:
    """Each file becomes one of Parquet."""
    read = (
        f"SELECT * FROM read_csv('{source}', delim = '\t', quote = '', escape = '', header = false, "
        "columns = {'key': 'VARCHAR', 'value': 'VARCHAR'})"
    )
    write = f"COPY ({read} ORDER BY key) TO '{target}' (FORMAT parquet, COMPRESSION uncompressed)"
    import_module("duckdb").execute(write)


def pyarrow(source: Path, target: Path) -> None:
    """Each file becomes one of Arrow."""
    package, csv = import_module("pyarrow"), import_module("pyarrow.csv")
    table = csv.read_csv(
        source,
        csv.ReadOptions(column_names=list(COLUMNS)),
        csv.ParseOptions(delimiter="\t", quote_char=False),
        csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, package.binary())),
    )
    import_module("pyarrow.feather").write_feather(table.sort_by("key"), str(target), compression="uncompressed")


PACKAGES = {"polars": polars, "duckdb": duckdb, "pyarrow": pyarrow}


def installed() -> list[str]:
    """Those that can take part; the shell always can."""
    return ["zcat, sort", *filter(find_spec, PACKAGES)]


def run(name: str, source: Path, target: Path) -> float:
    """The processor time of one of them, with all that it starts, in seconds."""
    command = ["bash", "-c", SHELL, str(source), str(target)]
    if name in PACKAGES:
        command = [sys.executable, "-m", __name__, name, str(source), str(target)]
    target.mkdir()
    os.sync()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or len(list(target.iterdir())) != len(list(source.iterdir())):
        raise RuntimeError(f"{name} did not sort {source}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """One file after the other, as a build without lanes."""
    name, source, target = sys.argv[1:]
    for part in sorted(Path(source).iterdir()):
        made = Path(target) / part.name
        PACKAGES[name](part, made)
        with made.open("rb") as file:
            os.fsync(file.fileno())


if __name__ == "__main__":
    main()
