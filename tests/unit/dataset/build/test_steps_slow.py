"""Failing operations of a build; the fast tests are in `test_steps.py`."""

import errno
import os
from pathlib import Path

import pytest

from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.local.version import open_version
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import StorageError
from tests.unit.dataset.sources import MEMORY_BYTES, lines
from tests.world.faulty_files import Action, Fault, FaultyFiles


def build(job, files=None, **options):
    return perform(job, files or RealFiles(), BuildResources(MEMORY_BYTES, **options))


def opened(job):
    return open_version(RealFiles(), Path(job.directory), job.database, job.version)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_every_operation_that_fails_is_one_clear_error(job, error):
    """No manifest is left, the error names a path, and the same job succeeds afterwards."""
    calm = FaultyFiles(RealFiles())
    build(job([lines(a=1, b=2), lines(c=3)], name="calm"), calm)
    total = sum(calm.counts.values())
    struck = set()
    optional = 0  # Operations whose failure is harmless, such as asking for early write-back.
    for at in range(total):
        one = job([lines(a=1, b=2), lines(c=3)], name=f"v{at}")
        faulty = FaultyFiles(RealFiles(), Fault(at, Action.FAIL_HALFWAY, error=error))
        try:
            build(one, faulty)
        except StorageError as caught:
            assert os.strerror(error) in caught.message
            assert one.directory in caught.message or "source" in caught.message
            assert "_MANIFEST" not in os.listdir(one.directory) or faulty.struck[0].startswith("sync_directory")
            for name in os.listdir(one.directory):
                (Path(one.directory) / name).unlink()
            build(one)
        else:
            optional += 1
        assert len(faulty.struck) == 1
        struck.add(faulty.struck[0].split()[0])
        opened(one).close()
    assert struck == set(calm.counts)
    assert optional <= calm.counts["start_writeback"] + calm.counts["unlink"]
