"""Kills on a real file system; the fast tests are in `test_crashes.py`."""

from collections import Counter

import pytest

from gossipkv.environment.real_files import RealFiles
from tests.unit.dataset.test_crashes import operations, prepare, raise_to, what_is_served
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles

CRASHES = (Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER)


class Unsynced(RealFiles):
    """Real files without syncs: a killed process leaves its writes anyway, in a tenth of the time."""

    def sync(self, descriptor):
        """Do nothing."""

    def sync_directory(self, path):
        """Do nothing."""


@pytest.mark.parametrize("action", CRASHES)
def test_a_kill_at_every_operation(tmp_path, action):
    """A real file system keeps all writes of a killed process."""
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
