"""The steps of deploy/Dockerfile without a container engine: each stage runs on a copy of this machine's files.

A stage begins with `FROM`: here it is a private overlay over this machine's files, with a new Python environment in
place of the official image. The step that installs the compiler is omitted.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ci.cluster.pages import ROOT
from tests.ci.deploy.test_deploy import DEPLOY, instructions

STAGE = """
set -e
mount -t tmpfs tmpfs {place}
mkdir {place}/upper {place}/work {place}/root
mount -t overlay overlay -o lowerdir=/,upperdir={place}/upper,workdir={place}/work {place}/root
mount --rbind /dev {place}/root/dev
mount --rbind /proc {place}/root/proc
chmod o+x {place}/root{opened}
mkdir {place}/root/wheels {place}/root/source {place}/root/image
cp -R {context}/. {place}/root/source
cp -R {wheels}/. {place}/root/wheels
chroot {place}/root {python} -m venv /image
chroot {place}/root env -C /source PATH=/image/bin:$PATH sh -e -c {steps}
cp -R {place}/root/wheels/. {wheels} 2>/dev/null || true
"""

# User, settings and commands are the image's, and the network is private.
LIVE = """
ip link set lo up
{drop} --inh-caps=-all env {settings} GOSSIPKV_INSECURE_GOSSIP=true {start} &
node=$!
until {health}; do kill -0 $node; sleep 0.2; done
{drop} {health}
kill -{signal} $node
wait $node
"""


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for word, rest in instructions():
        if word == "FROM":
            found.append([])
        elif found:
            found[-1].append((word, rest))
    return [stage for stage in found if stage]  # The first `FROM` only names the base image.


def words(stage: list[tuple[str, str]], wanted: str) -> list[str]:
    """Return the arguments of each occurrence of an instruction."""
    return [rest for word, rest in stage if word == wanted]


def run(place: Path, wheels: Path, steps: list[str]) -> None:
    context = place / "context"
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    tracked = subprocess.run(["git", "ls-files", "--", *kept], cwd=ROOT, check=True, stdout=-1, text=True).stdout
    for name in tracked.splitlines():
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, context / name)
    stage = place / "stage"
    stage.mkdir()
    python = Path(sys.base_prefix) / "bin" / "python3"
    # A Python in a home directory is not accessible to all users.
    opened = f" {stage}/root".join(map(str, python.parents[:-1]))
    steps = shlex.quote("\n".join(steps))
    script = STAGE.format(place=stage, context=context, wheels=wheels, python=python, opened=opened, steps=steps)
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("GOSSIPKV_", "PYTHON", "VIRTUAL"))
    }
    subprocess.run(["unshare", "--mount", "sh", "-c", script], check=True, env=environ)


@pytest.mark.timeout(1800)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to mount a tmpfs")
def test_the_steps_of_the_image(tmp_path: Path) -> None:
    """A wheel is built, installed, started without privileges, found healthy, and ended by the image's signal."""
    build, image = stages()
    wheels = tmp_path / "wheels"
    for name in ("wheels", "build", "image"):
        (tmp_path / name).mkdir()
    run(tmp_path / "build", wheels, [step for step in words(build, "RUN") if not step.startswith("apt-get ")])
    (wheel,) = wheels.iterdir()
    assert wheel.suffix == ".whl"
    start = [part for word in ("ENTRYPOINT", "CMD") for line in words(image, word) for part in json.loads(line)]
    (user,) = words(image, "USER")
    live = LIVE.format(
        drop=f"setpriv --reuid {user} --regid {user} --clear-groups",
        settings=words(image, "ENV")[0],
        start=shlex.join(start),
        health=shlex.join(json.loads(words(image, "HEALTHCHECK")[0].partition("CMD ")[2])),
        signal=words(image, "STOPSIGNAL")[0].removeprefix("SIG"),
    )
    copied = [f"cp -R {rest}" for rest in words(image, "COPY") if not rest.startswith("--from=")]  # From the context.
    run(tmp_path / "image", wheels, [*copied, *words(image, "RUN"), f"unshare --net sh -e -c {shlex.quote(live)}"])
