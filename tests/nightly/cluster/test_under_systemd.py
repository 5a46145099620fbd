"""deploy/gossipkv.service under a private systemd: process 1 of namespaces, on an overlay over this machine's files.

Units that would change the shared kernel (sysctl, modules, binary formats) are masked.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ci.cluster.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SYSTEMD = "/lib/systemd/systemd"
PATIENCE_S = 120
WATCHDOG_S = 2
MASKED = ("systemd-sysctl", "systemd-modules-load", "systemd-binfmt", "systemd-remount-fs", "systemd-udevd")

BOOT = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs {place}
cd {place}
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir={place}/upper,workdir={place}/work root
cd root
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
echo 0123456789abcdef0123456789abcdef > etc/machine-id
for unit in {masked}; do ln -sf /dev/null etc/systemd/system/$unit.service; done
cp {root}/deploy/gossipkv.service etc/systemd/system/
mkdir -p etc/systemd/system/gossipkv.service.d opt/gossipkv/bin srv/datasets/capitals/1
printf '[Service]\\nProtectHome={home}\\nWatchdogSec={watchdog}\\n' > etc/systemd/system/gossipkv.service.d/test.conf
chmod o+x ./{opened}
printf '#!/bin/sh\\nexport PYTHONPATH={root}\\nexec {python} -m gossipkv "$@"\\n' > opt/gossipkv/bin/gossipkv
chmod 755 opt/gossipkv/bin/gossipkv
printf 'peru\\tLima\\n' > srv/datasets/capitals/1/part-0
printf 'source = "/srv/datasets"\\n' > etc/gossipkv.toml
useradd --root $PWD --system --no-create-home --shell /usr/sbin/nologin gossipkv
export container=test
exec chroot . {systemd} --system --unit=basic.target --show-status=0
"""


@pytest.fixture
def typed(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Yield a function that runs a command under that systemd and returns its output; all is killed with the test."""
    if os.geteuid() != 0 or shutil.which(SYSTEMD) is None:
        pytest.skip("needs systemd, and the right to mount a tmpfs")
    places = {*Path(sys.executable).resolve().parents, *Path(sys.executable).parents, *ROOT.parents} - {Path("/")}
    script = BOOT.format(
        place=tmp_path,
        root=ROOT,
        python=sys.executable,
        systemd=SYSTEMD,
        masked=" ".join(MASKED),
        watchdog=WATCHDOG_S,
        home="no" if any(path.is_relative_to("/root") or path.is_relative_to("/home") for path in places) else "yes",
        opened=" ./".join(str(path).lstrip("/") for path in sorted(places)),
    )
    namespaces = ["--mount", "--pid", "--cgroup", "--uts", "--ipc", "--net"]
    group = control_group()
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs the right to make a control group: {error.strerror}")
    joins = f'echo 0 > {group}/cgroup.procs && exec "$@"'
    outer = subprocess.Popen(
        ["sh", "-c", joins, "sh", "unshare", *namespaces, "--fork", "--kill-child=KILL", "sh", "-c", script],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        until(lambda: outer.poll() is not None or name_of(child_of(outer.pid)) == "systemd")
        assert outer.poll() is None, outer.stdout.read()
        process = child_of(outer.pid)
        entering = ["nsenter", "--target", process, "--mount", "--pid", "--net", "--uts", "--ipc", "--root", "--wd"]

        def run(command: str) -> str:
            done = subprocess.run(
                [*entering, "sh", "-c", command], check=False, stdout=-1, stderr=-2, text=True, timeout=PATIENCE_S
            )
            return done.stdout.strip()

        until(lambda: run("systemctl is-system-running") in {"running", "degraded"})
        yield run
    finally:
        outer.kill()
        outer.communicate()
        until(lambda: "populated 0" in (group / "cgroup.events").read_text())
        for made in sorted(path for path in group.rglob("*") if path.is_dir())[::-1]:
            made.rmdir()
        group.rmdir()


def control_group() -> Path:
    """Return a control group for this systemd, below that of this process."""
    (mount, *_) = re.findall(r"(?m)^\S+ (\S+) cgroup2 ", Path("/proc/mounts").read_text())
    (own,) = re.findall(r"(?m)^0::(.*)$", Path("/proc/self/cgroup").read_text())
    return Path(mount + own) / f"gossipkv-{os.getpid()}"


def child_of(process: int) -> str:
    """Return the only child of a single-threaded process, or "" if there is none yet."""
    return Path(f"/proc/{process}/task/{process}/children").read_text().strip()


def name_of(process: str) -> str:
    return Path(f"/proc/{process or 'self'}/comm").read_text().strip()


def until(true: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < give_up_s
        time.sleep(0.1)


def test_the_unit_under_systemd(typed: Callable[[str], str]) -> None:
    """The unit is ready when the node is, shows its status, restarts after a hang or death, and stops cleanly."""

    def shown(name: str) -> str:
        return typed(f"systemctl show gossipkv --property {name} --value")

    typed("ip link set lo up")
    assert typed("systemctl start gossipkv") == ""
    until(lambda: shown("StatusText") == "serves 1 of 1 datasets; hears 0 of 0 other members")
    assert typed("/opt/gossipkv/bin/gossipkv get capitals peru") == "Lima"
    assert (
        typed("systemctl reload gossipkv; journalctl --unit gossipkv --output cat | grep -c 'refresh .*SIGHUP'") != ""
    )
    for count, number in enumerate((signal.SIGSTOP, signal.SIGKILL), 1):
        typed(f"kill -{number} {shown('MainPID')}")
        until(lambda count=count: (shown("NRestarts"), shown("ActiveState")) == (str(count), "active"))
    typed("systemctl stop gossipkv")
    assert (shown("ActiveState"), shown("Result")) == ("inactive", "success")
    typed("echo 'nonsense = 1' >> /etc/gossipkv.toml; systemctl start gossipkv")
    assert (shown("ActiveState"), shown("ExecMainStatus")) == ("failed", "2")
