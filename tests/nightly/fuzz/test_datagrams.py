"""100,000 datagrams and requests of strangers to living clusters of cores: no member is harmed, memory is bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly.fuzz.datagrams import NOISE

ROOT = Path(__file__).parents[3]
SEED = int(os.environ.get("FUZZ_NUMBER", "1"))


def flood(scenario: str, packets: int) -> dict:
    """Return the report of `tests.nightly.fuzz.flood`; a failure shows the command that repeats it."""
    command = [sys.executable, "-m", "tests.nightly.fuzz.flood", scenario, str(packets), str(SEED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"replay with `{' '.join(['python', *command[1:]])}`\n{done.stderr[-3000:]}"
    return json.loads(done.stdout)


# The reasons for drops that any sender can cause, each of which must be counted sometimes.
PLAIN = {
    "short", "foreign", "protocol_version", "cluster_name", "form", "cluster_id", "no_keys", "checksum", "message",
    "request",
}  # fmt: skip
SEALED = PLAIN - {"no_keys", "checksum"} | {"not_sealed", "own", "unknown_key", "replayed", "not_authentic"}


@pytest.mark.parametrize(("scenario", "reasons"), [("plain", PLAIN), ("sealed", SEALED)])
def test_noise_changes_nothing(scenario: str, reasons: set[str]) -> None:
    """Noise of any kind changes no belief, and each drop is counted under its reason."""
    told = flood(scenario, 40_000)
    assert set(told["sent"]) == set(NOISE)
    assert min(told["sent"].values()) > 300
    assert set(told["drops"]) == reasons
    assert min(told["drops"].values()) > 100
    assert told["grown_bytes"] < 32 << 20


@pytest.mark.parametrize("scenario", ["forged", "crowded"])
def test_lies_are_outlived(scenario: str) -> None:
    """Under a thousand forged packets a second no core fails or stops, memory is bounded, and all agree again."""
    told = flood(scenario, 10_000)
    assert min(told["drops"].values()) > 1000
    assert told["grown_bytes"] < 64 << 20
    assert told["agreed_after_ms"] < 1_200_000
