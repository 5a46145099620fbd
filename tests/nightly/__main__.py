"""Run the legs that take too long for each change, one after the other, and append each to a report.

    python -m tests.nightly REPORT [LEG...]

The Makefile sets the numbers (`NUMBERS`) in the environment; unset numbers have the values of each change. A leg that
fails does not stop the next one; the exit status says if any failed. A leg that runs for `LEG_MINUTES` is cut: since
tests come in a random order, another night runs the rest.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import parse

import gossipkv
from tests.bench import machine
from tests.nightly import budgets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NUMBERS = (
    *("SIMULATED_SEEDS", "FUZZ_FRAMES", "FUZZ_FLIPS", "CRASH_STRIDE", "SOAK_SECONDS", "FAULTS_SECONDS", "TABLES"),
    *("MOVES_SECONDS", "DIVISIONS_SECONDS", "CHAOS_SECONDS", "MUTATION_SECONDS", "LEG_MINUTES"),
)
LEG_MINUTES = float(os.environ.get("LEG_MINUTES", "60"))
TO_END_S = 120  # The time in which a cut leg closes its files and writes its results.
# These tests measure the memory of the process, and a sanitizer takes several times as much.
OF_MEMORY = (
    "tests/unit/serving/test_connection.py::test_large_frames_leave_no_memory_behind",
    "tests/unit/dataset/formats/test_codecs_slow.py::test_bombs_take_no_memory",
    "tests/unit/dataset/formats/test_codecs_slow.py::test_long_values_do_not_wait_for_a_full_batch",
    "tests/unit/dataset/formats/test_text_slow.py::test_a_bomb_takes_no_memory",
)
BOTH = ("-n", "2")  # Cores.
ROOT = Path(__file__).parents[2]
SCRATCH = ROOT / "build" / "nightly"


@dataclass(frozen=True)
class Leg:
    """Commands that run in turn until one fails; `tests` are the arguments of pytest, which runs last."""

    name: str
    before: Sequence[Sequence[str]] = ()
    tests: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    after: Sequence[Sequence[str]] = ()  # These commands always run.


def sanitizer(name: str) -> str:
    """Return the path of a library that must be loaded before Python."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def legs() -> list[Leg]:
    """Return all legs; legs that change the extensions come last."""
    by_day = ("-m", "not night")
    return [
        Leg(
            "seeds", tests=(*BOTH, *(f"tests/simulation/test_{name}.py" for name in ("seeds", "seeds_slow", "sealed")))
        ),
        Leg("datasets", tests=(*BOTH, "tests/simulation/test_datasets.py")),
        Leg("registers", tests=(*BOTH, "tests/simulation/test_edits.py")),
        Leg("metadata", tests=(*BOTH, "tests/simulation/test_metadata.py")),
        Leg(
            "replication", tests=(*BOTH, "tests/simulation/test_replication.py", "tests/simulation/test_refounding.py")
        ),
        Leg("nodes", tests=(*BOTH, *by_day, "-k", "whole_nodes", "tests/simulation")),
        Leg("searches", tests=(*BOTH, "tests/nightly/simulation")),
        Leg("units", tests=(*BOTH, "-m", "night", "tests/unit")),
        # Each leg tests five new seeds of twenty; a single leg would be cut.
        *(
            Leg(f"line {part}", tests=("tests/nightly/line",), environ=dict.fromkeys(NUMBERS, ""))
            for part in range(1, 5)
        ),
        Leg("properties", tests=(*BOTH, *by_day, "--hypothesis-profile=explore", "tests/unit")),
        Leg("fuzz", tests=(*BOTH, "--hypothesis-profile=explore", "tests/nightly/fuzz")),
        Leg("crashes", tests=(*BOTH, "tests/nightly/crashes")),
        Leg("benchmarks", tests=("tests/nightly/bench",)),
        Leg("kills", tests=(*BOTH, "tests/nightly/mutants")),
        Leg("readers", tests=("tests/nightly/readers",)),
        Leg("feast", tests=("tests/nightly/feast",)),
        Leg("spark", tests=("tests/nightly/spark",)),
        Leg("site", tests=("tests/nightly/site",)),
        Leg("clusters", tests=(*BOTH, "tests/nightly/cluster")),
        Leg("soak", tests=("tests/nightly/soak/test_soak.py",)),
        Leg("chaos", tests=("tests/nightly/soak/test_chaos.py",)),
        Leg("audit", before=[("make", "audit")]),
        Leg("costs", before=[(".ci/run", "--costs", str(SCRATCH / "costs.jsonl"))]),
        # The tests of a change, with the cost of each folder against its budget.
        Leg(
            "budgets",
            tests=(*BOTH, *by_day, "-p", "tests.nightly.budgets", "tests"),
            environ=dict.fromkeys(NUMBERS, ""),
        ),
        *(Leg(f"python {version}", before=[(".ci/run", "--python", version)]) for version in ("3.12", "3.13")),
        *debug_legs(),
    ]


def debug_legs() -> list[Leg]:
    """Return the legs that change the extensions and build them again."""
    sanitized = {
        # The sanitizer looks in the second library, at once, for the exception functions that pyarrow needs later.
        "LD_PRELOAD": f"{sanitizer('libasan.so')} {sanitizer('libstdc++.so.6')}",
        # Python keeps memory until the end, and some tests ask for more than exists to see a refusal.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    debug = ("env", "GOSSIPKV_SANITIZE=address,undefined", "make", "debug")
    return [
        Leg(
            "sanitizers",
            before=[debug],
            tests=(
                *BOTH,
                "--max-worker-restart=100",  # A crash must not hide the next one.
                "--hypothesis-profile=brief",
                "--timeout=3600",
                *(f"--deselect={place}" for place in OF_MEMORY),
                "tests/nightly/fuzz/test_tls_records.py",
                "tests/unit",
                *(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/unit/**/test_*_slow.py")),
            ),
            environ=sanitized | {"BUILD_MEMORY": str(256 << 20)},
            after=[("make", "build")],
        ),
        # Cores, loops and files are extension types, whose construction, method tables and ends belong to Python, so a
        # driver in C would have to be Python or run other code than the served one. The steps of such a driver are
        # exactly the steps that run here without the interpreter's lock.
        Leg(
            "races",
            before=[("env", "GOSSIPKV_SANITIZE=thread", "make", "debug")],
            tests=(
                "tests/unit/serving/test_pumps_slow.py",
                "tests/unit/serving/test_core_lock_slow.py",
                "tests/unit/storage/test_twins.py",
                "tests/unit/storage/engine/test_gate_slow.py",
                "tests/unit/table/test_calm_slow.py::test_no_reader_meets_a_change_in_the_making",
                "tests/nightly/stores",
            ),
            # A detected race sets the exit status of the process.
            environ={"LD_PRELOAD": f"{sanitizer('libtsan.so')} {sanitizer('libstdc++.so.6')}"},
            after=[("make", "build")],
        ),
    ]


def run(leg: Leg) -> tuple[bool, list[str]]:
    """Run a leg; return True if all of it succeeded, and its lines of the report."""
    began_s = time.monotonic()
    document = SCRATCH / f"{leg.name.replace(' ', '-')}.xml"
    document.unlink(missing_ok=True)
    told: list[str] = []
    is_cut = False
    is_right = all(subprocess.run(command, cwd=ROOT, check=False).returncode == 0 for command in leg.before)
    if is_right and leg.tests:
        command = [sys.executable, "-m", "pytest", "-o", "junit_family=xunit1", f"--junit-xml={document}", *leg.tests]
        status, is_cut = bounded(command, leg.environ)
        told = read_results(document) if document.exists() else [f"pytest ended with status {status}"]
        is_right = (status == 0 or is_cut) and not any(line.startswith(("failure:", "error:")) for line in told)
    for command in leg.after:
        is_right &= subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    heading = f"{'ok' if is_right else 'FAILED':8}{time.monotonic() - began_s:7.0f} s  {leg.name}"
    set_here = [f"{name}={number}" for name, number in leg.environ.items() if name in NUMBERS and number]
    set_here += [f"(cut after {LEG_MINUTES:g} minutes)"] if is_cut else []
    return is_right, [" ".join([heading, *set_here]), *(f"{'':12}{line}" for line in told)]


def bounded(command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, bool]:
    """Run a command for at most the time of a leg; return its status, and True if it was cut."""
    changed = {name: value for name, value in {**os.environ, **environ}.items() if value}
    with subprocess.Popen(command, cwd=ROOT, env=changed) as process:
        try:
            return process.wait(60 * LEG_MINUTES), False
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        try:
            return process.wait(TO_END_S), True
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait(), True


def read_results(document: Path) -> list[str]:
    """Return the number of tests, their measurements, and the failures."""
    found = parse(document).getroot()
    cases = list(found.iter("testcase"))
    ends = {name: [case for case in cases if case.find(name) is not None] for name in ("failure", "error", "skipped")}
    lines = [", ".join([f"{len(cases):,} tests", *(f"{len(some)} {name}" for name, some in ends.items())])]
    for case in cases:
        lines += [
            f"{case.get('name')}: {said.get('value')}"
            for said in case.iter("property")
            if said.get("name") == "measured"
        ]
    lines += [f"{name}: {case.get('file')}::{case.get('name')}" for name, some in ends.items() for case in some]
    return lines + budgets.told(cases)


def versions() -> list[str]:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[
        0
    ]
    return [
        f"gossipkv {gossipkv.__version__}, commit {commit.stdout.strip() or 'unknown'}",
        f"{machine.describe()}; {compiler}",
        " ".join(f"{name}={os.environ.get(name, 'as for a change')}" for name in NUMBERS),
    ]


def report(place: Path, chosen: Iterable[Leg]) -> int:
    """Run the legs, and append each to the report at its end; return the exit status."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    is_right = True

    def say(*lines: str) -> None:
        with place.open("a", encoding="utf-8") as file:
            file.write("\n".join([*lines, ""]))

    say(f"begun {datetime.now(UTC):%Y-%m-%d %H:%M} UTC", *versions(), "")
    for leg in chosen:
        was_right, told = run(leg)
        is_right &= was_right
        say(*told)
    say("", f"ended {datetime.now(UTC):%Y-%m-%d %H:%M} UTC: {'all is well' if is_right else 'NOT all is well'}", "")
    sys.stdout.write(place.read_text(encoding="utf-8"))
    return 0 if is_right else 1


def main(place: str, *names: str) -> int:
    known = {leg.name: leg for leg in legs()}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"no such leg: {', '.join(unknown)}; there are {', '.join(known)}")
    return report(Path(place), [known[name] for name in names] if names else known.values())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
