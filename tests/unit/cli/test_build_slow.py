"""`build` with remote sources and many records; the fast tests are in `test_build.py`."""

from __future__ import annotations

import shutil

import pytest

from gossipkv.dataset import finish_version, partition_of
from gossipkv.errors import SourceError
from tests.unit.cli.test_build import by, records


def test_a_url_is_told_without_its_secrets(run, tmp_path):
    """Logs keep the output, so passwords and signatures of presigned URLs must not appear."""
    for url, shown in (
        ("ftp://joe:hush-hush@127.0.0.1:1/x", "ftp://***@127.0.0.1:1/x"),
        ("nothing://host/x?signature=hush-hush", "nothing://host/x?***"),
    ):
        done = run("build", url, tmp_path / "built")
        assert done.status == 3
        assert done.err.startswith(f"gossipkv: {shown}: cannot be read: ")
        assert "hush-hush" not in done.out + done.err


@pytest.fixture
def source(tmp_path):
    """Return a function that writes a source version of these files."""

    def source(files, suffix=".tsv"):
        place = tmp_path / "source" / "geo" / "v1"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for number, data in enumerate(files):
            (place / f"part-{number}{suffix}").write_bytes(data)
        (place / "_SUCCESS").touch()
        return place

    return source


def test_machines_of_which_one_met_a_stray_make_no_version(run, source, tmp_path):
    """Other machines' files lack the stray and are refused; with `--presharded never` all machines read it."""
    whole = {b"%0100d" % n: b"%d" % n for n in range(40_000)}
    stray = next(key for key in (b"stray%d" % n for n in range(99)) if partition_of(key, 4) == 2)
    files = by("sequins", 4, whole)
    files[0] += stray + b"\tlost\n"
    place = source(files)
    for presharded in ("probe", "never"):
        together = tmp_path / presharded / "geo" / "v2"
        together.mkdir(parents=True)
        for only in ("0,1", "2,3"):
            dest = tmp_path / f"{presharded}-{only}"
            done = run("build", place, dest, "--only", only, "--presharded", presharded)
            met = only == "0,1" or presharded == "never"
            assert (done.status, "rebuild the other partitions with --presharded never" in done.err) == (0, met)
            for path in dest.glob("part-*.gkv"):
                path.rename(together / path.name)
        if presharded == "probe":
            with pytest.raises(SourceError, match="a record may be in neither"):
                finish_version(together, 4)
            done = run("build", together, tmp_path / "x")
            assert (done.status, "build this file again with --presharded never" in done.err) == (3, True)
        else:
            finish_version(together, 4)
            assert records(together) == whole | {stray: b"lost"}
