"""Builds that a signal ends, and tables that are forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from tests.unit.cli.test_process_slow import COMMAND


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_a_build_that_is_ended_clears_up(tmp_path, ending):
    """SIGTERM and SIGHUP clean up as Ctrl-C does: the directory is as before, and no process is left."""
    source, dest = tmp_path / "source", tmp_path / "made" / "here"
    source.mkdir()
    for number in range(2):
        lines = (b"%d-%d\tvalue\n" % (number, line) for line in range(1_500_000))
        (source / f"part-{number}").write_bytes(b"".join(lines))
    before = signal.signal(ending, signal.SIG_DFL)  # A process under `nohup` ignores the signal and would go on.
    process = subprocess.Popen(
        [*COMMAND, "build", str(source), str(dest), "--lanes", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    signal.signal(ending, before)
    while not (dest.is_dir() and any(name.startswith("run-") or ".tmp" in name for name in os.listdir(dest))):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(ending)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert os.listdir(tmp_path) == ["source"]


def test_forgetting_tables(tmp_path):
    """The flag starts a new node, which logs where the old tables are; given twice it is wrong use."""
    data = tmp_path / "data"
    serve = [*COMMAND, "serve", "--data", str(data), "--listen", "127.0.0.1:0"]
    for _ in range(2):
        (data / "tables").mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen([*serve, "--forget-tables"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout.readline().startswith(b"ready ")
        process.terminate()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert b"tables_forgotten" in err
        assert str(data).encode() in err
    assert {"tables-forgotten-1", "tables-forgotten-2"} <= {entry.name for entry in data.iterdir()}
    done = subprocess.run([*serve, "--forget-tables"], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.endswith(b"no tables to forget, and nothing was changed; start it without --forget-tables\n")
