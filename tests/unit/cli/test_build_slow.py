"""Tests over real processes, sockets, threads or time; `test_build.py` has the others."""

from __future__ import annotations


def test_a_url_is_told_without_its_secrets(run, tmp_path):
    """The password of a store, the signature of a presigned URL: logs of jobs keep what commands say."""
    for url, shown in (
        ("ftp://joe:hush-hush@127.0.0.1:1/x", "ftp://***@127.0.0.1:1/x"),
        ("nothing://host/x?signature=hush-hush", "nothing://host/x?***"),
    ):
        done = run("build", url, tmp_path / "built")
        assert done.status == 3
        assert done.err.startswith(f"gossipkv: {shown}: cannot be read: ")
        assert "hush-hush" not in done.out + done.err
