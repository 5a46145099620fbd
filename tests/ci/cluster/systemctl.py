"""A substitute for `systemctl` on machines without systemd: it starts the command of the unit as the unit's user.

    systemctl daemon-reload | enable --now NAME | start NAME | stop NAME | restart NAME | reload NAME | status NAME

The program reads the unit where systemd would, speaks `Type=notify` and sends SIGKILL after SIGTERM. It neither
confines nor restarts processes: `tests/ci/deploy` tests the confinement.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tests.ci.deploy.confined import unit

UNITS = Path("/etc/systemd/system")
POLL_S = 0.05


def state(name: str) -> dict[str, object]:
    """Return the state that the supervisor knows: process, readiness, status; empty if no process runs."""
    try:
        return json.loads(Path(f"/run/{name}.state").read_text())
    except FileNotFoundError:
        return {}


def supervise(name: str) -> None:
    """Start the service, read its notifications, and wait for its end."""
    service = unit(str(UNITS / f"{name}.service"))["Service"]
    user = pwd.getpwnam(service["User"])
    for name_below in service["StateDirectory"].split():
        directory = Path("/var/lib") / name_below
        directory.mkdir(int(service["StateDirectoryMode"], 8), exist_ok=True)
        shutil.chown(directory, user.pw_uid, user.pw_gid)
    Path(f"/run/{name}.notify").unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told, open(f"/var/log/{name}.log", "ab") as log:
        told.bind(f"/run/{name}.notify")
        os.chmod(f"/run/{name}.notify", 0o666)
        told.settimeout(POLL_S)
        drop = ["setpriv", "--reuid", service["User"], "--regid", service["User"], "--clear-groups", "--no-new-privs"]
        environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "NOTIFY_SOCKET": f"/run/{name}.notify"}
        node = subprocess.Popen(
            [*drop, "--bounding-set=-all", "--inh-caps=-all", *shlex.split(service["ExecStart"])],
            env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
        )  # fmt: skip
        heard: dict[str, object] = {"process": node.pid}
        while node.poll() is None:
            whole = Path(f"/run/{name}.state")
            whole.with_suffix(".new").write_text(json.dumps(heard))
            whole.with_suffix(".new").rename(whole)
            if not Path("/proc", os.environ["MACHINE"]).exists():  # The machine is gone.
                node.kill()
            try:
                heard |= dict(line.split("=", 1) for line in told.recv(4096).decode().splitlines())
            except TimeoutError:
                continue
    Path(f"/run/{name}.state").unlink()


def start(name: str) -> None:
    """Return when the service is ready; exit with status 1 if it ends instead."""
    if state(name):
        return
    Path(f"/run/{name}.state").write_text("{}")
    supervisor = subprocess.Popen(
        [sys.executable, __file__, "supervise", name],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    while "READY" not in state(name):
        if supervisor.poll() is not None:
            sys.exit(f"{name} has ended:\n" + Path(f"/var/log/{name}.log").read_text())
        time.sleep(POLL_S)


def stop(name: str) -> None:
    give_up_s = time.monotonic() + int(unit(str(UNITS / f"{name}.service"))["Service"]["TimeoutStopSec"])
    number = signal.SIGTERM
    while found := state(name):
        if number is not None:
            os.kill(int(found["process"]), number)
            number = None
        if time.monotonic() > give_up_s:
            os.kill(int(found["process"]), signal.SIGKILL)
            sys.exit(f"{name} did not end in time, and was killed")
        time.sleep(POLL_S)


def main(verb: str, *words: str) -> None:
    name = words[-1] if words else ""
    if verb == "supervise":
        supervise(name)
    if verb in {"stop", "restart"}:
        stop(name)
    if verb in {"start", "restart"} or (verb, *words[:1]) == ("enable", "--now"):
        start(name)
    if verb == "reload":
        command = unit(str(UNITS / f"{name}.service"))["Service"]["ExecReload"]
        subprocess.run(shlex.split(command.replace("$MAINPID", str(state(name)["process"]))), check=True)
    if verb == "status":
        active = "active (running)" if "READY" in state(name) else "inactive"
        sys.stdout.write(f"Active: {active}\nStatus: {json.dumps(state(name).get('STATUS', ''))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
