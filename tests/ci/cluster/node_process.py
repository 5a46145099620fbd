"""A node as a process of its own, for tests."""

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
# For `changed`: builds beside a serving node do not wait for whatever else runs on this machine.
UNHURRIED = "from gossipkv.processes import niceness\nniceness.give_way = lambda *_: None"
# A read waits for another node's turn on a busy machine, where the usual 100 ms are soon over.
PATIENT = {"proxy_timeout": "30s", "proxy_stage_timeout": "500ms"}
PATIENTLY = [f"--{name.replace('_', '-')}={value}" for name, value in PATIENT.items()]


class NodeProcess:
    """`gossipkv serve`, started and ready, with its address; killed at the end at the latest.

    `changed` is Python that runs in it first, to change a constant; `environ` is added to its environment; `within` is
    a command that becomes it.
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
        if soft_descriptors is not None:  # As of a shell; this process may have more open already.
            command = ["sh", "-c", f'ulimit -Sn {soft_descriptors}; exec "$@"', "sh", *command]
        cleared = {name: value for name, value in os.environ.items() if not name.startswith("GOSSIPKV_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*within, *command], stdout=subprocess.PIPE, stderr=log, env=cleared | environ
            )
        self.address = ""

    def ready(self) -> str:
        """The one line on standard output; sets the address."""
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        assert readable, self.said()
        line = self.process.stdout.readline().decode()
        assert line.startswith("ready "), (line, self.said())
        self.address = line.split()[1]
        return line

    def said(self) -> str:
        return self.log.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def connect(address: str) -> blocking.Client:
    """Return a client that waits for as long as a busy machine may take."""
    return blocking.connect(address, timeout_ms=PATIENCE_S * 1000)


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
