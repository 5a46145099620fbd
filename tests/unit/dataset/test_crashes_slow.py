"""Tests that cost seconds; `test_crashes.py` has the others."""

from collections import Counter

import pytest

from gossipkv.environment.real_files import RealFiles
from tests.unit.dataset.test_crashes import operations, prepare, raise_to, what_is_served
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles

CRASHES = (Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER)


class Unsynced(RealFiles):
    """A killed process leaves what it wrote, synced or not; without syncs the test takes a tenth of the time."""

    def sync(self, descriptor):
        """Nothing."""

    def sync_directory(self, path):
        """Nothing."""


@pytest.mark.parametrize("action", CRASHES)
def test_a_kill_at_every_operation(tmp_path, action):
    """On a real file system, which keeps what was written."""
    struck = Counter()
    expected = operations()
    for at in range(sum(expected.values())):
        root = tmp_path / str(at)
        (root / "source").mkdir(parents=True)
        files = Unsynced()
        prepare(files, root)
        faulty = FaultyFiles(files, Fault(at, action, kinds=CHANGING))
        said = []
        with pytest.raises(Crash):
            raise_to(faulty, root, "v2", said)
        struck[faulty.struck[0].split()[0]] += 1
        assert what_is_served(files, root) in ({"v2"} if said else {"v1", "v2"})
        raise_to(files, root, "v2")
        assert what_is_served(files, root) == "v2"
    assert struck == expected
