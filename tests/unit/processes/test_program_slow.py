"""Slow tests of programs; the fast ones are in `test_program.py`."""

import subprocess

from gossipkv.processes.program import command, environment


def test_a_program_says_a_line_at_once(tmp_path):
    """A package of the same name in the current directory is not imported."""
    (tmp_path / "gossipkv").mkdir()
    (tmp_path / "gossipkv" / "__init__.py").write_text("raise SystemExit(7)")
    run = [*command("gossipkv")[:2], "-c", "from gossipkv.processes.program import say; say(b'x' * 100_000)"]
    done = subprocess.run(run, cwd=tmp_path, env=environment(), capture_output=True, check=True)
    assert done.stdout == b"x" * 100_000 + b"\n"
