"""docs/operators/three-machines.md, typed literally, on machines that are namespaces of this machine.

Each machine has a network, a name, and its own /etc, /opt, /run, /srv, /usr/local and /var: overlays over this
machine's directories, gone with the test. Three substitutes replace missing programs:

    pip install    a script in the environment's place, which runs the program under test
    scp, ssh       write into another machine's files, and run a command there; there is no sshd
    systemctl      `systemctl.py` beside this file: the unit's own lines, as its user, READY=1 awaited
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ci.cluster import networks
from tests.ci.cluster.networks import Network
from tests.ci.cluster.pages import ROOT, Block, blocks_of, commands, is_shown

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = "docs/operators/three-machines.md"
PATIENCE_S = 120
ALL = (1, 2, 3, 4)
LOST = 3
COPIED_TO = re.compile(r"scp .*root@10\.77\.0\.(\d)")
SECRETS, SETUP_ENDS, LOSS = "## Keys, certificates, users", "## Verify the cluster", "## Replace a lost machine"
CREDENTIALS = re.compile(r" --ca \S+ --token-file \S+")
PROGRAM = "/opt/gossipkv-0.1.0/bin/gossipkv "
OVERLAID = ("etc", "opt", "srv", "usr/local", "var")

MACHINE = """
set -e
hostname n{number}
mount -t tmpfs tmpfs /run
for name in {overlaid}; do
    mkdir -p /run/up/$name /run/work/$name
    mount -t overlay overlay -o lowerdir=/$name,upperdir=/run/up/$name,workdir=/run/work/$name /$name
done
chmod o+x {opened}
for version in 0.1.0 0.1.1; do
    place=/opt/gossipkv-$version/bin
    mkdir -p $place
    printf '#!/bin/sh\\nexport PYTHONPATH=%s\\nexec %s -m gossipkv "$@"\\n' {root} {python} > $place/gossipkv
    chmod 755 $place/gossipkv
done
printf '#!/bin/sh\\nMACHINE={holder} exec %s %s "$@"\\n' {python} {here}/systemctl.py > /usr/local/bin/systemctl
cp {tools}/scp {tools}/ssh /usr/local/bin/
chmod 755 /usr/local/bin/systemctl /usr/local/bin/scp /usr/local/bin/ssh
"""
SCP = """#!/bin/bash
set -e
to=${{!#}}
case ${{to%%:*}} in
{cases}
esac
for file in "${{@:1:$#-1}}"; do
    path=${{to#*:}}
    case $path in */) path=$path$file ;; esac
    $there install -m "$(stat -c %a "$file")" /dev/stdin "$path" < "$file"
done
"""
SSH = """#!/bin/sh
case $1 in
{cases}
esac
exec $there sh -c "$2"
"""


class Machines:
    def __init__(self, place: Path, network: Network) -> None:
        self._network = network
        self._tools = place
        there = {f"root@{networks.address(number)}": shlex.join(network.command_at(number)) for number in ALL}
        cases = "\n".join(f"{name}) there='{way}' ;;" for name, way in there.items())
        for name, script in (("scp", SCP), ("ssh", SSH)):
            (place / name).write_text(script.format(cases=cases))
        for number in ALL:
            self.prepare(number)

    def prepare(self, number: int) -> None:
        """Make a machine look like a freshly installed system."""
        paths = [Path(sys.base_prefix), Path(sys.prefix), ROOT]
        closed = {
            parent
            for path in paths
            for parent in path.parents
            if parent.stat().st_mode & 1 == 0 and parent != Path("/")
        }
        tops = {Path(*parent.parts[:2]).name for parent in closed}
        script = MACHINE.format(
            number=number,
            overlaid=" ".join([*OVERLAID, *sorted(tops)]),
            opened=" ".join(map(str, sorted(closed))) or "/run",
            root=ROOT,
            python=sys.executable,
            here=Path(__file__).parent,
            tools=self._tools,
            holder=self._network.command_at(number)[2],
        )
        assert (said := self.type(number, script)).returncode == 0, said.stdout

    def type(self, number: int, text: str) -> subprocess.CompletedProcess[str]:
        """Run text in a shell of a machine, from the top of the source."""
        environ = {"PATH": f"/usr/local/bin:{networks.PATH}:{os.environ['PATH']}", "HOME": "/run", "COLUMNS": "200"}
        return subprocess.run(
            self._network.command_at(number, "bash", "-c", f"cd {ROOT}\n{text}"),
            check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environ, timeout=PATIENCE_S,
        )  # fmt: skip

    @contextmanager
    def read_without_end(self) -> Iterator[None]:
        """Read a key from the fourth machine, where no node runs yet, without pause; no read may fail."""
        assert self.type(1, "cd ~/gossipkv && scp ca.pem web.token root@10.77.0.4:/run/").returncode == 0
        nodes = " ".join(f"--node {networks.address(number)}:7070" for number in ALL[:3])
        get = f"{PROGRAM}get capitals peru --ca /run/ca.pem --token-file /run/web.token {nodes}"
        loop = f"while [ ! -e /run/stop ]; do {get} && echo || exit 1; done"
        reader = subprocess.Popen(
            self._network.command_at(4, "bash", "-c", loop),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            yield
        finally:
            self.type(4, "touch /run/stop")
            said, _ = reader.communicate(timeout=PATIENCE_S)
        assert reader.returncode == 0, said
        assert set(said.split()) == {"Lima"}

    def lose(self, number: int) -> None:
        assert self.type(number, "kill -9 $(cat /var/lib/gossipkv/LOCK)").returncode == 0

    def replace(self, number: int) -> None:
        """Replace a machine by one at its address without any of its files."""
        mounted = " ".join(f"/{name}" for name in reversed(OVERLAID))
        assert (said := self.type(number, f"umount -l {mounted} && umount -l /run")).returncode == 0, said.stdout
        self.prepare(number)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if (reason := networks.missing(rules=False, whole=True)) is not None:
        pytest.skip(reason)
    with Network(len(ALL), whole=True) as network:
        yield Machines(tmp_path, network)


def where(block: Block) -> list[int]:
    """Return the machines on which the block is typed, in order; empty if the block is not for this test."""
    first, second = block.text.splitlines()[:2]
    if block.language == "console":
        assert first == "$ hostname", block.where
        return [int(second.removeprefix("n"))]
    if not first.startswith("# on "):
        return []
    return [1, 2, 3] if first == "# on each machine" else [int(found) for found in re.findall(r"n(\d)", first)]


def run_block(machines: Machines, block: Block, number: int) -> None:
    """Type a block on a machine; it must succeed and eventually show the page's output."""
    if "nft -f" in block.text and shutil.which("nft") is None:
        return
    if block.language == "sh":
        said = machines.type(number, f"set -e\n{block.text}")
        assert said.returncode == 0, f"{block.where} on n{number}:\n{said.stdout}"
        return
    for typed in commands(block):
        give_up_s = time.monotonic() + PATIENCE_S
        while not is_shown(typed.shown, (said := machines.type(number, typed.command)).stdout) or said.returncode != 0:
            assert time.monotonic() < give_up_s, f"{block.where}: {typed.command}\nshows\n{said.stdout}"
            time.sleep(0.2)


@pytest.mark.timeout(900)
def test_the_page_on_machines(machines: Machines) -> None:
    """Three machines form a cluster, upgrade in turn, lose one, replace it, and add a fourth."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    secrets, until, lost = (text[: text.index(title)].count("\n") for title in (SECRETS, SETUP_ENDS, LOSS))
    blocks = [block for block in blocks_of(PAGE) if block.language in {"sh", "console"}]
    setup = [block for block in blocks if block.line <= until and LOST in where(block)]
    for block in blocks:
        newcomer = int(found[1]) if block.line > lost and (found := COPIED_TO.search(block.text)) else 0
        if newcomer == LOST:
            machines.replace(LOST)
        for repeated in setup if newcomer else ():
            if repeated.line < secrets:
                run_block(machines, repeated, newcomer)
        with machines.read_without_end() if "systemctl restart" in block.text else nullcontext():
            for number in where(block):
                run_block(machines, block, number)
        for repeated in setup if newcomer else ():
            if repeated.line > secrets:
                run_block(machines, repeated, newcomer)
        if "systemctl restart" in block.text:
            machines.lose(LOST)


def test_what_nftables_filters() -> None:
    """Without nft the page's rules are left out."""
    if shutil.which("nft") is None:
        pytest.skip("there is no nft")
    assert any("nft -f" in block.text and where(block) for block in blocks_of(PAGE))


def test_the_nodes_of_the_compose_file(machines: Machines) -> None:
    """The file's settings and the image's work on machines that resolve each other by service names."""
    services = pytest.importorskip("yaml").safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    image = re.search(r"(?m)^ENV (.*)$", (ROOT / "deploy" / "Dockerfile").read_text())[1]
    hosts = "".join(f"{networks.address(number)} n{number}\\n" for number in ALL[:3])
    for number in ALL[:3]:
        environ = shlex.join(f"{name}={value}" for name, value in services[f"n{number}"]["environment"].items())
        script = f"""
            printf '{hosts}' >> /etc/hosts
            mkdir -p /srv/datasets/capitals/1 && printf 'peru\\tLima\\n' > /srv/datasets/capitals/1/part-0
            setsid env {image} {environ} {PROGRAM} serve > /run/said 2>&1 &
            until grep -q ^ready /run/said; do kill -0 $! && sleep 0.1 || exit 1; done
        """
        assert (said := machines.type(number, script)).returncode == 0, said.stdout
    try:
        (block,) = (block for block in blocks_of(PAGE) if block.language == "console" and "n2 " in block.text)
        plain = CREDENTIALS.sub("", block.text).replace("gossipkv ", PROGRAM)
        run_block(machines, Block(**{**vars(block), "text": plain}), 1)
    finally:
        for number in ALL[:3]:
            machines.lose(number)
