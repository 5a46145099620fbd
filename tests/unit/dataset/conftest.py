"""Sources and jobs for the tests of datasets."""

import pytest

from gossipkv.dataset.build.job import BuildJob
from gossipkv.environment.real_files import RealFiles
from tests.unit.dataset.sources import put_version
from tests.unit.dataset.world import World


@pytest.fixture
def put(tmp_path):
    """Return a function that puts a version below `tmp_path / "source"`."""
    (tmp_path / "source").mkdir()

    def put(name, contents, database="db"):
        return put_version(RealFiles(), tmp_path / "source", name, contents, database)

    return put


@pytest.fixture
def job(tmp_path, put):
    """Return a function that makes the job of a new version in a new directory."""

    def job(contents, name="v1", **options):
        directory = tmp_path / f"build-{name}"
        directory.mkdir()
        return BuildJob.of(put(name, contents), str(directory), **options)

    return job


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)
