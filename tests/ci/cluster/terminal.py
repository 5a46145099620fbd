"""A reader who types the commands of a page: one shell, a home, a directory, and servers in further terminals."""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tests.ci.cluster.pages import ROOT
from tests.ports import neighbouring_ports

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 60
END_S = 60
POLL_S = 0.02
SERVER = re.compile(r"(?:^|[\s/])gossipkv (serve|cluster up|http)\b(?!.*--(?:detach|help))", re.DOTALL)
FOLLOWER = re.compile(r"(?:^|[\s/])gossipkv .*--watch\b")
READY = re.compile(r"^ready |Ctrl-C ends the cluster", re.MULTILINE)
PLACES = re.compile(r"(?:(?<![\w.}/])|(?<=://)|(?<=:///))/(?=(?:tmp|srv|etc|opt|var/lib)(?:/|\b))")
NODES, GATEWAYS = range(7070, 7090), range(8080, 8100)  # The ports of the pages.
PORT = re.compile(r"(?<![\d.])(?:70[78]\d|80[89]\d)(?![\d.])")
LISTENS = re.compile(r"--(?:http-|resp-)?listen[ =]\S*?(\d+)(?=\s|$)")

# The reader's installed command. A cluster uses ports from 7070 and 8080 on, which the machine of a test may have in
# use; a node there may be delayed for longer than the default timeout of one second.
COMMAND = """#!/bin/sh
if [ "$1 $2" = "cluster up" ]; then shift 2; set -- cluster up --base-port {port} --http-base-port {http} "$@"; fi
case "$1" in get|mget|scan|put|delete|refresh) set -- "$@" --timeout 30s;; esac
exec {python} -m gossipkv "$@"
"""


@dataclass(frozen=True)
class Said:
    status: int
    text: str


@dataclass(frozen=True)
class Server:
    """A process in a terminal of its own: its output file and the ports where it listens."""

    process: int
    output: Path
    ports: frozenset[int]


class Reader:
    """A reader, for a `with` block, at whose end all started processes are ended."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.directory = place / "clone"
        self.servers: list[Server] = []
        self._ports = dict(zip((*NODES, *GATEWAYS), neighbouring_ports(len(NODES) + len(GATEWAYS)), strict=True))
        self._number = 0
        self._prepare()
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("GOSSIPKV_", "XDG_"))}
        address = f"127.0.0.1:{self._ports[7070]}"
        environ |= {
            "HOME": str(place / "home"), "PATH": f"{self.directory / '.venv' / 'bin'}:{environ['PATH']}",
            "GOSSIPKV_NODE": address, "GOSSIPKV_LISTEN": address, "COLUMNS": "200", "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"], cwd=self.directory, env=environ, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def _prepare(self) -> None:
        programs = self.directory / ".venv" / "bin"
        for directory in (programs, self.place / "home", *(self.place / name for name in ("tmp", "srv", "etc"))):
            directory.mkdir(parents=True)
        python = shlex.quote(sys.executable)
        texts = {"gossipkv": COMMAND.format(port=self._ports[7070], http=self._ports[8080], python=python)}
        texts |= dict.fromkeys(("python", "python3"), f'#!/bin/sh\nexec {python} "$@"\n')
        for name, text in texts.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)

    def here(self, text: str) -> str:
        """Return a page's text with this reader's ports and directories."""
        text = PLACES.sub(f"{self.place}/", text)
        return PORT.sub(lambda found: str(self._ports.get(int(found[0]), found[0])), text)

    def as_on_the_page(self, text: str) -> str:
        """Return output with the ports and directories of the page."""
        text = text.replace(str(self.directory) + "/", "").replace(str(self.place), "")
        for told, taken in self._ports.items():
            text = re.sub(rf"(?<!\d){taken}(?!\d)", str(told), text)
        return text

    def type(self, command: str, within_s: float = PATIENCE_S) -> Said:
        """Run a command of a page, with this reader's ports and directories."""
        return self.run(self.here(command), within_s)

    def run(self, command: str, within_s: float = PATIENCE_S) -> Said:
        """Run a command to its end; a server or follower runs until it is ready, in a terminal of its own."""
        if SERVER.search(command) or FOLLOWER.search(command):
            return self._start(command, within_s)
        output = self._file()
        self._tell(f"eval {shlex.quote(command)} >{output} 2>&1 </dev/null; echo $?")
        status = self._hear(command, within_s)
        return Said(int(status), self.as_on_the_page(output.read_text(errors="replace")))

    def end_servers(self) -> None:
        for server in self.servers:
            self._end(server)
        self.servers.clear()

    def _start(self, command: str, within_s: float) -> Said:
        """Start a server in place of an earlier one with the same ports."""
        ports = self._ports_of(command)
        for server in [server for server in self.servers if server.ports & ports]:
            self._end(server)
            self.servers.remove(server)
        output = self._file()
        code = shlex.quote(f"exec env {command}")  # Variables that precede a command apply to that command alone.
        self._tell(f"bash -c {code} >{output} 2>&1 </dev/null & echo $!")
        server = Server(int(self._hear(command, within_s)), output, ports)
        self.servers.append(server)
        give_up_s = time.monotonic() + within_s
        while not (text := output.read_text(errors="replace")) or (ports and not READY.search(text)):
            assert time.monotonic() < give_up_s, f"not ready in {within_s} s: {command}\n{text}"
            assert is_alive(server.process), f"ended: {command}\n{text}"
            time.sleep(POLL_S)
        return Said(0, self.as_on_the_page(text))

    def _ports_of(self, command: str) -> frozenset[int]:
        """Return the ports where a command listens; none if it only watches."""
        kind = SERVER.search(command)
        if kind is None:
            return frozenset()
        if kind[1] == "cluster up":
            return frozenset(self._ports.values())
        first = self._ports[7070 if kind[1] == "serve" else 8080]
        said = {int(port) for port in LISTENS.findall(command)}
        return frozenset(said if re.search(r" --listen\b", command) else said | {first})

    def _end(self, server: Server) -> None:
        """End a server by its process id; the shell, its parent, reaps it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if is_alive(server.process):
                os.kill(server.process, number)
            give_up_s = time.monotonic() + END_S
            while is_alive(server.process) and time.monotonic() < give_up_s:
                time.sleep(POLL_S)

    def _file(self) -> Path:
        self._number += 1
        path = self.place / f"said-{self._number}"
        path.touch()
        return path

    def _tell(self, line: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(line + "\n")
        self._shell.stdin.flush()

    def _hear(self, command: str, within_s: float) -> str:
        readable, _, _ = select.select([self._shell.stdout], [], [], within_s)
        assert readable, f"did not end in {within_s} s: {command}"
        assert self._shell.stdout is not None
        return self._shell.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.end_servers()
        finally:
            if is_alive(self._shell.pid):
                # The shell leads a session, so this also kills processes that nothing else has ended.
                os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.communicate()


def is_alive(process: int) -> bool:
    """False also for a process that only waits to be reaped."""
    try:
        with open(f"/proc/{process}/stat", "rb") as told:
            return told.read().rpartition(b") ")[2][:1] not in {b"Z", b"X"}
    except OSError:
        return False
