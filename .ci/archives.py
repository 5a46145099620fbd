"""Check what the archives carry: the source archive all of the source, the wheel all that runs and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

CARRIED = ("gossipkv", "src_ext", "tests", "docs", "deploy")
IN_A_WHEEL = {".py", ".pyi", ".so", ".pyd", ".typed", ".html", ".css", ".js", ".svg"}


def tracked(*paths: str) -> set[str]:
    """What stands below these paths in the repository."""
    git = ["git", "ls-files", "--", *paths]
    return set(subprocess.run(git, check=True, capture_output=True, text=True).stdout.splitlines())


def source_faults(archive: Path) -> list[str]:
    """Tracked files that the source archive lacks, and generated ones that it has."""
    with tarfile.open(archive) as opened:
        names = {str(PurePosixPath(*PurePosixPath(item.name).parts[1:])) for item in opened if item.isfile()}
    expected = tracked(*CARRIED, "setup.py", "pyproject.toml", "README.md", "LICENSE")
    faults = [f"{archive.name}: lacks {name}" for name in sorted(expected - names)]
    untracked = sorted(names - expected)
    generated = [name for name in untracked if PurePosixPath(name).suffix in {".c", ".so", ".pyd", ".pyc"}]
    return faults + [f"{archive.name}: carries the generated {name}" for name in generated]


def wheel_faults(archive: Path) -> list[str]:
    """Files that a wheel has no use for or that are not of this tree, and those that it lacks."""
    with zipfile.ZipFile(archive) as opened:
        names = [PurePosixPath(item.filename) for item in opened.infolist() if not item.is_dir()]
    package = [name for name in names if name.parts[0] == "gossipkv"]
    strangers = [name for name in names if name not in package and not name.parts[0].endswith(".dist-info")]
    faults = [f"{archive.name}: carries {name}" for name in strangers]
    faults += [f"{archive.name}: carries {name}" for name in package if name.suffix not in IN_A_WHEEL]
    sources = {str(name) for name in package if name.suffix not in {".so", ".pyd"}}
    faults += [f"{archive.name}: lacks {name}" for name in sorted(tracked("gossipkv") - sources)]
    faults += [
        f"{archive.name}: carries {name}, which is not of this tree" for name in sorted(sources - tracked("gossipkv"))
    ]
    built = {str(name.parent / name.name.split(".")[0]) for name in package if name.suffix in {".so", ".pyd"}}
    wanted = {str(path.relative_to("src_ext").with_suffix("")) for path in Path("src_ext/gossipkv").rglob("_*.pyx")}
    stubs = {str(name.with_suffix("")) for name in package if name.suffix == ".pyi" and name.name.startswith("_")}
    faults += [f"{archive.name}: lacks the extension {name}" for name in sorted(wanted - built)]
    faults += [f"{archive.name}: carries an unknown extension {name}" for name in sorted(built - wanted)]
    return faults + [f"{archive.name}: {name} lacks its stub" for name in sorted(wanted - stubs)]


def main() -> int:
    """Print the faults of both archives; 1 if there are any."""
    source, wheel = map(Path, sys.argv[1:])
    faults = source_faults(source) + wheel_faults(wheel)
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{source.name} and {wheel.name}: {len(faults)} faults")
    return min(1, len(faults))


if __name__ == "__main__":
    sys.exit(main())
