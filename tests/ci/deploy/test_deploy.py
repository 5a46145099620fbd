"""The files of deploy/: a unit under which a node works, an image and a compose file that fit the node."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gossipkv.settings.config import load
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, connect, wait_for
from tests.ci.cluster.pages import ROOT
from tests.ci.cluster.test_pages import unknown_words
from tests.ci.deploy.confined import unit

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "gossipkv.service"
HERE = Path(__file__).parent
# The schema comes from compose-spec at 170098ba.
SCHEMA_SHA256 = "1f91e091f16b2dd50ab8860e02bb391d22df553d91c145eacedb1b6eff9c3f0e"
EXPOSURE = re.compile(r"Overall exposure level for \S+: ([0-9.]+)")

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


def analyzed(place: Path, *words: str) -> str:
    """Return the output of `systemd-analyze` for the unit, with another program path and user."""
    program = place / "gossipkv"
    program.touch(0o755)
    text = UNIT.read_text().replace("/opt/gossipkv/bin/gossipkv", str(program)).replace("User=gossipkv", "User=root")
    (place / "gossipkv.service").write_text(text)
    command = ["systemd-analyze", *words, str(place / "gossipkv.service")]
    return subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


@needs_systemd
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` reports nothing about the unit."""
    assert [line for line in analyzed(tmp_path, "verify").splitlines() if "gossipkv.service" in line] == []


@needs_systemd
def test_little_is_exposed(tmp_path: Path) -> None:
    """By systemd's own measure, in which a service without hardening has 10, the exposure is at most 2.5."""
    found = EXPOSURE.search(analyzed(tmp_path, "security", "--offline=true"))
    assert float(found[1]) <= 2.5


def test_the_unit_fits_the_node() -> None:
    """The stop timeout exceeds twice the drain timeout, and the command line exists."""
    service = unit(str(UNIT))["Service"]
    assert int(service["TimeoutStopSec"]) * 1000 > 2 * load(None, {}, {}).drain_timeout
    assert unknown_words("gossipkv" + service["ExecStart"].partition("bin/gossipkv")[2]) == []


@needs_systemd
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to mount a tmpfs")
def test_a_node_lives_under_the_unit(tmp_path: Path) -> None:
    """Without capabilities, on a read-only system, with the unit's system calls, a node builds, decides and ends."""
    version = tmp_path / "source" / "geo" / "1"
    version.mkdir(parents=True)
    (version / "part-0").write_bytes(b"paris\tFrance\n")
    ring = tmp_path / "keys"
    subprocess.run([sys.executable, "-m", "gossipkv", "keys", "new", ring], check=True, stdout=subprocess.DEVNULL)
    options = ("--http-listen", "127.0.0.1:0", "--key-ring", str(ring))
    with NodeProcess(tmp_path, *options, source=tmp_path / "source", within=confinement(tmp_path)) as node:
        node.ready()
        wait_for(node.address, "geo", "1")
        with connect(node.address) as client:
            assert client.dataset("geo").get(b"paris") == b"France"
            client.call("create_table", "carts", {"kind": "hash", "partitions": 1, "replication": 1})
            client.table("carts").put(b"k", b"v")
            assert client.table("carts").get(b"k") == b"v"
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
        )
        assert (int(status["CapEff"], 16), status["NoNewPrivs"], status["Seccomp"]) == (0, "1", "2")
        assert node.stop() == 0
        assert "build_failed" not in node.said()


def confinement(place: Path) -> list[str]:
    """Return the prefix of a node's command that makes all but the node's data below `place` read-only."""
    data = place / "data"
    data.mkdir(0o700)
    mounts = f"mount --bind {data} {data} && mount -o remount,bind,ro / && ! touch {place}/x 2>/dev/null"
    drop = "setpriv --no-new-privs --bounding-set=-all --inh-caps=-all"
    script = f'{mounts} && exec {drop} {sys.executable} {HERE}/confined.py {UNIT} "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


def test_the_unit_is_held_to(tmp_path: Path) -> None:
    """A process that makes a call outside the unit is killed, so the test before would notice."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    for program, status in (("import os; os.getpid()", 0), ("import os; os.chown('/', 0, 0)", -31)):
        command = [sys.executable, str(HERE / "confined.py"), str(UNIT), sys.executable, "-c", program]
        assert subprocess.run(command, check=False).returncode == status


# The image ------------------------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    return [tuple(line.split(" ", 1)) for line in lines if line and not line.startswith("#")]


def test_the_image_fits_the_program() -> None:
    """Its commands, settings and ports exist, and its user is not root."""
    (health,), (entry,), (command,) = (
        [rest for word, rest in instructions() if word == wanted] for wanted in ("HEALTHCHECK", "ENTRYPOINT", "CMD")
    )
    assert unknown_words(" ".join(json.loads(health.partition("CMD ")[2]))) == []
    assert unknown_words(" ".join(json.loads(entry) + json.loads(command))) == []
    environ = dict(pair.split("=") for word, rest in instructions() if word == "ENV" for pair in rest.split())
    config = load(None, environ, {})
    assert (config.listen.port, config.http_listen.port, str(config.data)) == (7070, 8080, "/var/lib/gossipkv")
    assert ("EXPOSE", "7070/tcp 7070/udp 8080/tcp") in instructions()
    assert [rest for word, rest in instructions() if word == "USER"] == ["gossipkv"]


def test_the_image_has_what_a_wheel_is_made_of() -> None:
    """The build context holds all files that setup.py and the package need."""
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert all((ROOT / name).exists() for name in kept)
    assert {"gossipkv", "src_ext", "setup.py", "pyproject.toml", "README.md", "LICENSE"} <= kept


def test_the_image_installs_by_hashes() -> None:
    """Each external package is pinned; all others come from the first stage."""
    pips = [step for word, rest in instructions() if word == "RUN" for step in rest.split(" && ") if "pip " in step]
    assert len(pips) == 4
    for step in pips:
        assert "--require-hashes --requirement " in step or "--no-deps " in step, step
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert {f"!requirements/{name}.txt" for name in ("build", "image")} <= {*kept}


def test_images_and_actions_are_pinned_by_hash() -> None:
    """No tag that somebody could move: each external image has a digest, and each action a commit."""
    images = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    images += [found["image"] for found in read_yaml("compose.yaml")["services"].values()]
    external = [image for image in images if image not in {"base", "gossipkv"}]
    assert [image for image in external if not re.fullmatch(r"\S+:\S+@sha256:[0-9a-f]{64}", image)] == []
    workflows = [*(ROOT / ".github" / "workflows").iterdir()]
    actions = [action for path in workflows for action in re.findall(r"uses: (.*)", path.read_text())]
    assert (len(external), len(workflows)) == (3, 2)
    assert [action for action in actions if not re.fullmatch(r"\S+@[0-9a-f]{40}  # v[0-9.]+", action)] == []


# The compose file -----------------------------------------------------------------------------------------------------


def read_yaml(name: str) -> dict[str, object]:
    return pytest.importorskip("yaml").safe_load((DEPLOY / name).read_text())


def test_the_compose_file_is_one() -> None:
    """The file is valid under the schema of the Compose Specification, of which a copy is beside this file."""
    fastjsonschema = pytest.importorskip("fastjsonschema")
    schema = (HERE / "compose-spec.json").read_bytes()
    assert hashlib.sha256(schema).hexdigest() == SCHEMA_SHA256
    validate = fastjsonschema.compile(json.loads(schema))
    compose = read_yaml("compose.yaml")
    validate(compose)
    compose["services"]["n1"]["port"] = compose["services"]["n1"].pop("ports")
    with pytest.raises(fastjsonschema.JsonSchemaException, match="n1"):
        validate(compose)


def test_the_compose_file_fits_the_program() -> None:
    """The nodes' settings exist, each node joins the others, and the mounted files exist."""
    services = read_yaml("compose.yaml")["services"]
    nodes = {name: found for name, found in services.items() if found["image"] == "gossipkv"}
    assert list(nodes) == ["n1", "n2", "n3"]
    for name, node in nodes.items():
        config = load(None, node["environment"], {})
        assert (config.node, [address.host for address in config.join]) == (name, list(nodes))
        assert config.expected_hosts == "", "Prometheus asks by name, which is refused otherwise"
        assert int(node["stop_grace_period"].removesuffix("s")) * 1000 > 2 * config.drain_timeout
        assert (DEPLOY / node["build"]["context"] / node["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    mounted = [volume for found in services.values() for volume in found["volumes"] if volume.startswith(("./", "../"))]
    assert len(mounted) == 5
    assert [volume for volume in mounted if not (DEPLOY / volume.split(":")[0]).is_file()] == []


def test_prometheus_and_grafana_find_what_they_need() -> None:
    """Rules and dashboard are about the single job, its targets are the nodes, and the rules are mounted."""
    services = read_yaml("compose.yaml")["services"]
    prometheus = read_yaml("prometheus.yml")
    (job,) = prometheus["scrape_configs"]
    rules = (ROOT / "docs" / "operators" / "alerts.yml").read_text()
    jobs = set(re.findall(r'job(=~?"[^"]+")', rules))
    assert jobs == {'=~"gossipkv.*"'}
    assert job["job_name"].startswith("gossipkv")
    assert job["static_configs"] == [{"targets": ["n1:8080", "n2:8080", "n3:8080"]}]
    targets = [volume.split(":")[1] for volume in services["prometheus"]["volumes"]]
    assert f"/etc/prometheus/{prometheus['rule_files'][0]}" in targets
    (source,) = read_yaml("grafana-datasource.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = read_yaml("grafana-dashboards.yml")["providers"]
    dashboards = [volume.split(":")[1] for volume in services["grafana"]["volumes"] if ".json:" in volume]
    assert [str(Path(path).parent) for path in dashboards] == [provider["options"]["path"]]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_the_configuration(tmp_path: Path) -> None:
    """The check includes the rules at the compose file's mount point."""
    shutil.copy(DEPLOY / "prometheus.yml", tmp_path)
    shutil.copy(ROOT / "docs" / "operators" / "alerts.yml", tmp_path)
    subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], check=True, timeout=PATIENCE_S)
