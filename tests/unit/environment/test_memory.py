"""The memory for mapped files is found in the files of many kinds of systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossipkv.environment.memory import RealMemory, Room, rooms

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20

# 16 GiB are available; 3 GiB are mapped by all, of which this process has 1 GiB and 100 MiB in shared memory.
MEMINFO = "MemTotal: 33554432 kB\nMemAvailable:   16777216 kB\nActive(file): 7 kB\nMapped: 3145728 kB\n"
STATUS = "Name:\tgossipkv 5 kB\nVmRSS:\t 9 kB\nRssAnon:\t 512 kB\nRssFile:\t 1048576 kB\nRssShmem:\t 102400 kB\n"
OWN = (1024 + 100) * MIB
MACHINE = Room("MemAvailable", 16_384 * MIB - (3072 * MIB - OWN))

UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
SPLIT = (
    "31 23 0:28 / /sys/fs/cgroup rw shared:9 master:1 - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
)


class Tree:
    """A tree of a system's files, written below a directory."""

    def __init__(self, root: Path, *, mounts: str = "", groups: str = "") -> None:
        self.root = root
        self.put("/proc/meminfo", MEMINFO)
        self.put("/proc/self/status", STATUS)
        self.put("/proc/self/mountinfo", mounts)
        self.put("/proc/self/cgroup", groups)

    def put(self, path: str, text: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def group(self, path: str, *, current: int, cache: int = 0, mapped: int = 0, **limits: int | str) -> None:
        """Write a control group of version 2, with sizes in MiB; text limits are literal."""
        for name, limit in limits.items():
            text = limit if isinstance(limit, str) else str(limit * MIB)
            self.put(f"{path}/memory.{name}", f"{text}\n")
        self.put(f"{path}/memory.current", f"{current * MIB}\n")
        active, inactive = cache * MIB // 4, cache * MIB // 2
        counts = {"anon": 5, "file": cache * MIB, "file_mapped": mapped * MIB, "active_file": active}
        counts |= {"inactive_file": inactive, "slab_reclaimable": cache * MIB - active - inactive}
        self.put(f"{path}/memory.stat", "".join(f"{name} {count}\n" for name, count in counts.items()))

    def group_of_version_1(self, path: str, *, limit: int, rss: int, shmem: int = 0, mapped: int = 0) -> None:
        """Write a control group of version 1; sizes in MiB."""
        counts = {"cache": 7, "rss": 1, "mapped_file": 3, "hierarchical_memory_limit": limit * MIB}
        counts |= {"total_rss": rss * MIB, "total_shmem": shmem * MIB, "total_mapped_file": mapped * MIB}
        self.put(f"{path}/memory.stat", "".join(f"{name} {count}\n" for name, count in counts.items()))

    @property
    def rooms(self) -> set[Room]:
        """Return all rooms; the first of several equally small ones counts."""
        memory = RealMemory(self.root)
        found = list(rooms(memory._read))
        assert memory.room() == min(found, key=lambda room: room.size_bytes, default=None)
        return set(found)


def test_a_machine_without_control_groups(tmp_path):
    """The room is the available memory without the maps of other processes."""
    assert Tree(tmp_path).rooms == {MACHINE}


def test_every_group_along_the_path(tmp_path):
    """Each limit of each group of version 2 leaves a room, and the smallest counts."""
    tree = Tree(tmp_path, mounts=UNIFIED, groups="0::/a.slice/b.service\n")
    tree.group("/sys/fs/cgroup/a.slice", current=3000, cache=2000, mapped=1324, max=8000, high="max")
    tree.group("/sys/fs/cgroup/a.slice/b.service", current=700, cache=600, mapped=500, max=2000, high=1500)
    tree.group("/sys/fs/cgroup/a.slice/another", current=1, max=10)
    assert tree.rooms == {
        MACHINE,
        Room("memory.max of /sys/fs/cgroup/a.slice", (8000 - 1000 - 200) * MIB),
        Room("memory.max of /sys/fs/cgroup/a.slice/b.service", (2000 - 100) * MIB),
        Room("memory.high of /sys/fs/cgroup/a.slice/b.service", (1500 - 100) * MIB),
    }
    assert RealMemory(tmp_path).room().limit == "memory.high of /sys/fs/cgroup/a.slice/b.service"


def test_three_nodes_in_one_group(tmp_path):
    """Maps of the two other nodes are no room for the third, though that cache could be dropped."""
    tree = Tree(tmp_path, mounts=UNIFIED, groups="0::/nodes\n")
    tree.group("/sys/fs/cgroup/nodes", current=3500, cache=3400, mapped=1124 + 2000, max=4000)
    assert RealMemory(tmp_path).room() == Room("memory.max of /sys/fs/cgroup/nodes", (4000 - 100 - 2000) * MIB)


def test_a_group_that_is_over_its_limit(tmp_path):
    """The room is negative then, and no error."""
    tree = Tree(tmp_path, mounts=UNIFIED, groups="0::/a\n")
    tree.group("/sys/fs/cgroup/a", current=900, cache=0, mapped=0, high=100)
    assert RealMemory(tmp_path).room() == Room("memory.high of /sys/fs/cgroup/a", -800 * MIB)


def test_groups_of_version_1(tmp_path):
    """The limit holds for the whole group, whose anonymous and shared memory cannot be dropped."""
    tree = Tree(tmp_path, mounts=SPLIT, groups="9:name=systemd:/x\n4:cpuacct,memory:/a/b\n1:cpu:/\n")
    tree.group_of_version_1("/sys/fs/cgroup/memory", limit=1 << 42, rss=9000)
    tree.group_of_version_1("/sys/fs/cgroup/memory/a", limit=4000, rss=1000, shmem=50, mapped=1224)
    tree.group_of_version_1("/sys/fs/cgroup/memory/a/b", limit=4000, rss=300)
    assert tree.rooms == {
        MACHINE,
        Room("hierarchical_memory_limit of /sys/fs/cgroup/memory", ((1 << 42) - 9000) * MIB),
        Room("hierarchical_memory_limit of /sys/fs/cgroup/memory/a", (4000 - 1050 - 100) * MIB),
        Room("hierarchical_memory_limit of /sys/fs/cgroup/memory/a/b", 3700 * MIB),
    }


def test_both_versions_at_once(tmp_path):
    """If both are mounted, the one that counts memory is used."""
    unified = UNIFIED.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
    tree = Tree(tmp_path, mounts=SPLIT + unified, groups="4:memory:/a\n0::/user\\x2d1.slice\n")
    tree.put("/sys/fs/cgroup/unified/user\\x2d1.slice/cgroup.procs", "1\n")
    tree.group_of_version_1("/sys/fs/cgroup/memory/a", limit=100, rss=20)
    assert tree.rooms == {MACHINE, Room("hierarchical_memory_limit of /sys/fs/cgroup/memory/a", 80 * MIB)}


@pytest.mark.parametrize(("root", "path", "seen"), [
    ("/", "/", ["/sys/fs/cgroup"]),  # The container's own name for its group.
    ("/docker/4a", "/docker/4a", ["/sys/fs/cgroup"]),  # The host's name, of which the container sees the last part.
    ("/docker/4a", "/docker/4a/init", ["/sys/fs/cgroup", "/sys/fs/cgroup/init"]),
    ("/docker/4a", "/docker/5b", ["/sys/fs/cgroup"]),  # The process was moved out of the mounted group.
    ("/", "/../5b", ["/sys/fs/cgroup"]),  # The moved process, seen from within.
    ("/../..", "/", ["/sys/fs/cgroup"]),  # The host's tree, in which the process does not know its place.
])  # fmt: skip
def test_in_a_container(root, path, seen, tmp_path):
    """The mounted group and those on the path to the process's own group count."""
    tree = Tree(tmp_path, mounts=UNIFIED.replace(" / ", f" {root} "), groups=f"0::{path}\n")
    for group in ("", "/init", "/5b", "/docker/4a", "/docker/5b"):
        tree.group(f"/sys/fs/cgroup{group}", current=1, max=50)
    assert tree.rooms == {MACHINE, *(Room(f"memory.max of {group}", 49 * MIB) for group in seen)}


def test_a_place_with_a_blank(tmp_path):
    """The kernel writes a blank as a number."""
    tree = Tree(tmp_path, mounts=UNIFIED.replace("/sys/fs/cgroup", r"/my\040groups"), groups="0::/a b\n")
    tree.group("/my groups/a b", current=10, max=50)
    assert Room("memory.max of /my groups/a b", 40 * MIB) in tree.rooms


def test_a_kernel_that_does_not_tell_what_is_mapped_here(tmp_path):
    """A map counts as another process's only if this process's own maps are known."""
    tree = Tree(tmp_path)
    tree.put("/proc/self/status", "VmRSS: 5 kB\n")
    assert tree.rooms == {Room("MemAvailable", 16_384 * MIB)}


def test_nothing_is_known(tmp_path):
    """Without these files there is no limit."""
    assert RealMemory(tmp_path).room() is None


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=settings.default.max_examples * 3)
def test_garbage_is_not_known(data, tmp_path):
    """Damaged files raise no error, and the intact ones still count."""
    files = {
        "/proc/meminfo": MEMINFO,
        "/proc/self/status": STATUS,
        "/proc/self/mountinfo": SPLIT + UNIFIED,
        "/proc/self/cgroup": "4:memory:/a\n0::/b\n",
        "/sys/fs/cgroup/memory/a/memory.stat": "hierarchical_memory_limit 9\ntotal_rss 1\n",
        "/sys/fs/cgroup/b/memory.max": "77\n",
        "/sys/fs/cgroup/b/memory.current": "7\n",
        "/sys/fs/cgroup/b/memory.stat": "inactive_file 3\n",
    }
    spoiled = data.draw(st.sets(st.sampled_from(sorted(files))))
    letters = st.text(st.sampled_from("09 :-/.\n\tkB,max\0é٣"), max_size=60) | st.text(max_size=60)
    for path in spoiled:
        damage = data.draw(letters)
        cut = data.draw(st.integers(0, len(files[path])))
        files[path] = data.draw(st.sampled_from([damage, files[path][:cut], files[path][:cut] + damage, "9" * 5000]))
    found = set(rooms(lambda path: files[str(path)] if str(path) in files else _refuse(path)))
    if "/proc/meminfo" not in spoiled:
        assert any(room.limit == "MemAvailable" for room in found)
    if not any(path.startswith(("/sys/fs/cgroup/b", "/proc/self")) for path in spoiled):
        assert Room("memory.max of /sys/fs/cgroup/b", 77 - 4) in found


def _refuse(path: object) -> str:
    raise FileNotFoundError(path)


def test_this_machine():
    """A process knows a limit within the machine's memory."""
    room = RealMemory().room()
    assert room is not None
    assert room.size_bytes < 1 << 50
