"""A node in a process of its own."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from gossipkv.client import blocking
from gossipkv.errors import NotReady, UnknownDatabase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PATIENCE_S = 60
# For `changed`: builds beside a serving node do not wait for other processes of this machine.
UNHURRIED = "from gossipkv.processes import niceness\nniceness.give_way = lambda *_: None"
# A read waits for another node's turn, which takes longer than the default 100 ms on a busy machine.
PATIENT = {"proxy_timeout": "30s", "proxy_stage_timeout": "500ms"}
PATIENTLY = [f"--{name.replace('_', '-')}={value}" for name, value in PATIENT.items()]


class NodeProcess:
    """A process of `gossipkv serve`, killed at the end of the block at the latest.

    `changed` is Python that runs in the process first, to change a constant; `environ` is added to its environment;
    `within` is a command that executes it.
    """

    def __init__(
        self,
        place: Path,
        *options: str,
        source: Path | None = None,
        soft_descriptors: int | None = None,
        changed: str = "",
        environ: Mapping[str, str] = MappingProxyType({}),
        within: Sequence[str] = (),
    ) -> None:
        self.log = place / "node.log"
        program = ["-c", f"import sys\n{changed}\nfrom gossipkv import cli\nsys.exit(cli.run(sys.argv[1:]))"]
        command = [sys.executable, *(program if changed else ["-m", "gossipkv"])]
        command += ["serve", "--data", str(place / "data"), "--listen", "127.0.0.1:0"]
        command += [*(["--source", str(source)] if source else []), *options]
        if soft_descriptors is not None:  # A shell sets the limit: this process may have more files open already.
            command = ["sh", "-c", f'ulimit -Sn {soft_descriptors}; exec "$@"', "sh", *command]
        cleared = {name: value for name, value in os.environ.items() if not name.startswith("GOSSIPKV_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*within, *command], stdout=subprocess.PIPE, stderr=log, env=cleared | environ
            )
        self.address = ""

    def ready(self) -> str:
        """Wait for the one line on standard output, set the address and return the line."""
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        assert readable, self.said()
        line = self.process.stdout.readline().decode()
        assert line.startswith("ready "), (line, self.said())
        self.address = line.split()[1]
        return line

    def said(self) -> str:
        return self.log.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def connect(address: str) -> blocking.Client:
    """Return a client of this node and no other, whose timeout suits a busy machine."""
    return blocking.Client([address], timeout_ms=PATIENCE_S * 1000, follows=False).dial()


def wait_for(address: str, database: str, version: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    with connect(address) as client:
        while True:
            try:
                if client.dataset(database).get_with_version(b"")[1] == version:
                    return
            except (NotReady, UnknownDatabase):
                pass
            assert time.monotonic() < give_up_s, client.status()
            time.sleep(0.02)
