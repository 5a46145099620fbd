"""The manifests of deploy/kubernetes are valid, and three nodes live under what they say."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.settings.config import load
from tests.ci.cluster import networks
from tests.ci.cluster.node_process import PATIENCE_S
from tests.ci.cluster.pages import ROOT, blocks_of
from tests.ci.cluster.test_pages import unknown_words

if TYPE_CHECKING:
    from collections.abc import Iterator

yaml = pytest.importorskip("yaml")

CHART = ROOT / "deploy" / "kubernetes" / "chart"
PAGE = ROOT / "docs" / "operators" / "kubernetes.md"
PLAIN = ROOT / "deploy" / "kubernetes" / "gossipkv.yaml"
HELM = Path(sys.executable).with_name("helm")
OLDEST, NEWEST = "1.30", "1.37"  # The chart's `kubeVersion`, and the newest of the schemas.
OPERATORS = "monitoring.coreos.com/v1"  # Kinds that Prometheus' operator defines.
DIGEST = "sha256:" + 64 * "a"
RELEASES = {
    "plain": [],
    "secured": ["secrets.tls=pairs", "settings.drain_timeout=1.5m", "isolationGroupLabel="],
    "issued": ["certManager.issuer=nodes", "secrets.users=", "networkPolicy.enabled=false", "image.digest=" + DIGEST],
    "watched": ["monitoring.serviceMonitor=true", "monitoring.alerts=true", "monitoring.labels.release=prometheus"],
    "OpenShift": ["runAsUser=null", "fsGroup=null", "storage.className=fast"],
}
POD = Path(__file__).with_name("pod.sh")
USER = 1_000_730_000  # No user of this machine, as on OpenShift.
PORT = 7070
OTHER_PLACE = 4  # The machine to which a pod moves.

needs_helm = pytest.mark.skipif(not HELM.exists(), reason="helm is not installed")


def rendered(release: str) -> str:
    settings = [word for value in RELEASES[release] for word in ("--set", value)]
    command = [HELM, "template", "gossipkv", CHART, *settings]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout


def documents(text: str) -> list[dict]:
    return [document for document in yaml.safe_load_all(text) if document]


def pod_of(text: str) -> dict:
    (nodes,) = (document for document in documents(text) if document["kind"] == "StatefulSet")
    return nodes["spec"]["template"]["spec"]


def environ_of(text: str, name: str, address: str) -> dict[str, str]:
    """Return the environment of a pod, as the kubelet resolves it."""
    fields = {"metadata.name": name, "status.podIP": address, "metadata.labels['topology.kubernetes.io/zone']": "a"}
    environ: dict[str, str] = {}
    for entry in pod_of(text)["containers"][0]["env"]:
        value = entry["value"] if "value" in entry else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for known, its_value in environ.items():
            value = value.replace(f"$({known})", its_value)
        environ[entry["name"]] = value
    return environ


@needs_helm
def test_the_plain_manifests_are_the_chart_s() -> None:
    """The first line of the file says how to write it again."""
    assert PLAIN.read_text().partition("\n")[2] == rendered("plain")


@needs_helm
def test_helm_finds_no_fault() -> None:
    subprocess.run([HELM, "lint", "--strict", CHART], check=True, capture_output=True, timeout=PATIENCE_S)


@needs_helm
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_takes_the_manifests(release: str, version: str) -> None:
    """All is valid by the schemas of a version of Kubernetes, which reject an unknown field."""
    schemas = pytest.importorskip("kubernetes_validate")
    nodes = []
    for document in documents(rendered(release)):
        if document["apiVersion"] != OPERATORS:
            schemas.validate(document, version, strict=True)
            nodes += [document] if document["kind"] == "StatefulSet" else []
    (wrong,) = nodes
    wrong["spec"]["replica"] = wrong["spec"].pop("replicas")
    with pytest.raises(schemas.ValidationError, match="replica"):
        schemas.validate(wrong, version, strict=True)


@needs_helm
def test_monitors_and_rules_are_about_the_nodes() -> None:
    """The monitor selects the clients' service, and makes the job that the rules are about."""
    found = {document["kind"]: document for document in documents(rendered("watched"))}
    monitor = found["ServiceMonitor"]["spec"]
    (clients,) = (
        document
        for document in documents(rendered("watched"))
        if document["kind"] == "Service"
        and monitor["selector"]["matchLabels"].items() <= document["metadata"]["labels"].items()
    )
    assert clients["metadata"]["labels"][monitor["jobLabel"]] == "gossipkv"
    assert monitor["endpoints"][0]["port"] in {port["name"] for port in clients["spec"]["ports"]}
    assert found["PrometheusRule"]["spec"] == yaml.safe_load((ROOT / "docs/operators/alerts.yml").read_text())
    assert found["PrometheusRule"]["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.parametrize(
    "release", ["plain", *(pytest.param(name, marks=needs_helm) for name in RELEASES if name != "plain")]
)
def test_the_manifests_fit_the_program(release: str) -> None:
    """Settings exist, probes and services meet the ports, files are below mounts, and the node has time to drain."""
    text = PLAIN.read_text() if release == "plain" else rendered(release)
    pod, environ = pod_of(text), environ_of(text, "gossipkv-1", "10.0.0.5")
    (node,) = pod["containers"]
    config = load(None, environ, {})
    assert (config.node, str(config.advertise)) == ("gossipkv-1", "gossipkv-1.gossipkv-nodes:7070")
    assert (config.advertise_address, config.http_hosts) == ("10.0.0.5", ("*",))
    mounts = [mount["mountPath"] for mount in node["volumeMounts"]]
    for path in filter(None, (config.data, config.key_ring, config.users, config.tls_key, config.tls_peers)):
        assert any(path.is_relative_to(mount) for mount in mounts), path
    assert {mount["name"] for mount in node["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]} | {"data"}
    ports = {port["name"]: port["containerPort"] for port in node["ports"]}
    assert (ports["rpc"], ports["gossip"], ports["http"]) == (config.listen.port,) * 2 + (config.http_listen.port,)
    for document in documents(text):
        if document["kind"] == "Service":
            assert {port["targetPort"] for port in document["spec"]["ports"]} <= set(ports)
    pause_s = node["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pause_s + 2 * config.drain_timeout / 1000
    assert node["readinessProbe"]["httpGet"]["scheme"] == ("HTTPS" if config.tls_certificate else "HTTP")


def test_the_page_names_what_there_is() -> None:
    """Each command of ours on the page exists, and each value of the chart that the page sets."""
    text = PAGE.read_text()
    blocks = [block.text for block in blocks_of(str(PAGE.relative_to(ROOT)))]
    lines = [line.strip().partition("-- ")[2] or line.strip() for block in blocks for line in block.splitlines()]
    ours = [line for line in lines if line.startswith("gossipkv ")] + re.findall(r"`(gossipkv [a-z][^`]*)`", text)
    assert len(ours) > 5
    assert [unknown_words(line) for line in ours if unknown_words(line)] == []
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    named = re.findall(r"--set ([\w.]+)=|`(secrets\.\w+|monitoring\.\w+|storage\.\w+)", text)
    for path in (first or second for first, second in named):
        group, _, name = path.partition(".")
        assert group == "settings" or name in (values[group] if name else {""}), path


def test_the_job_of_the_page() -> None:
    """The job for backups is valid, and its commands exist."""
    schemas = pytest.importorskip("kubernetes_validate")
    (job,) = [block.text for block in blocks_of(str(PAGE.relative_to(ROOT))) if block.text.startswith("apiVersion")]
    schemas.validate(yaml.safe_load(job), NEWEST, strict=True)
    (container,) = yaml.safe_load(job)["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert [unknown_words(command) for command in container["command"][2].split(" && ")] == [[], []]


class Pods:
    """Pods of the plain manifests, each in the network of a machine."""

    def __init__(self, place: Path, network: networks.Network) -> None:
        self.place, self.network = place, network
        self._text = PLAIN.read_text()
        self.hosts, self._secrets = place / "hosts", place / "secrets"
        self._secrets.mkdir(mode=0o755)
        ring = self._secrets / "keys"
        subprocess.run([sys.executable, "-m", "gossipkv", "keys", "new", ring], check=True, stdout=subprocess.DEVNULL)
        rights = ("see", "operate", "read:*", "write:*")
        users = self._secrets / "users"
        may = [word for right in rights for word in ("--may", right)]
        new = [sys.executable, "-m", "gossipkv", "users", "new", "anonymous", *may, "--file", users]
        subprocess.run(new, check=True, stdout=subprocess.DEVNULL)
        for secret in ring, users:
            os.chown(secret, 0, USER)
            secret.chmod(0o440)
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int, *, at: int) -> None:
        """Start pod `number` at a machine, on the volume that it had before."""
        volumes = {"data": self.place / f"data-{number}", "tmp": self.place / f"tmp-{number}-{at}"}
        for volume in volumes.values():
            volume.mkdir(exist_ok=True)
            os.chown(volume, 0, USER)
            volume.chmod(0o2775)
        volumes["key-ring"] = volumes["users"] = self._secrets
        (container,) = pod_of(self._text)["containers"]
        mounts = [f"{volumes[mount['name']]}={mount['mountPath']}" for mount in container["volumeMounts"]]
        root = self.place / f"root-{number}-{at}"
        root.mkdir()
        environ = environ_of(self._text, f"gossipkv-{number - 1}", networks.address(at))
        trees = dict.fromkeys([sys.base_prefix, str(ROOT), sys.prefix])
        command = self.network.command_at(
            at, "unshare", "--pid", "--fork", "--kill-child", "--mount",
            "sh", str(POD), str(root), str(USER), str(USER), str(self.hosts), " ".join(trees), " ".join(mounts),
            sys.executable, "-m", "gossipkv", "serve",
        )  # fmt: skip
        with (self.place / f"log-{number}-{at}").open("wb") as log:
            self.running[number] = subprocess.Popen(
                command, env={"PATH": networks.PATH, **environ}, stdout=log, stderr=log
            )

    def first(self, number: int) -> int:
        """Return process 1 of a pod, by its id on this machine."""
        holder = self.running[number].pid
        return int(Path(f"/proc/{holder}/task/{holder}/children").read_text())

    def end(self, number: int) -> int:
        """Send SIGTERM to process 1 of a pod, as the kubelet does, and return its exit status."""
        os.kill(self.first(number), signal.SIGTERM)
        return self.running.pop(number).wait(PATIENCE_S)

    def probe(self, at: int, path: str) -> str:
        """Return the status of a probe."""
        program = (
            "import http.client, sys; c = http.client.HTTPConnection(sys.argv[1], 8080, timeout=30)\n"
            "c.request('GET', sys.argv[2]); print(c.getresponse().status)"
        )
        command = self.network.command_at_switch(sys.executable, "-c", program, networks.address(at), path)
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()

    def eventually(self, found: object) -> None:
        give_up_s = time.monotonic() + PATIENCE_S
        while not found():
            said = "".join(path.read_text() for path in sorted(self.place.glob("log-*")))
            assert time.monotonic() < give_up_s, said
            time.sleep(0.2)

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    if (reason := networks.missing(rules=False, whole=True)) is not None:
        pytest.skip(reason)
    with networks.Network(OTHER_PLACE, whole=True) as network:
        found = Pods(tmp_path, network)
        with contextlib.closing(found):
            yield found


def alive(network: networks.Network, at: int) -> dict[str, str]:
    """Return the addresses of the live members by their names, as a node sees them."""
    with contextlib.suppress(ConnectionError):
        members = network.ask(at, "members")
        return {member["node"]: member["address"] for member in members if member["state"] == "alive"}
    return {}


def test_three_nodes_live_by_the_manifests(pods: Pods) -> None:
    """With their environment, uid, read-only root and mounts, as process 1, nodes serve, drain, and move."""
    network = pods.network
    names = "".join(f"{networks.address(at)} gossipkv-nodes\n" for at in (1, 2, 3))
    pods.hosts.write_text(f"127.0.0.1 localhost\n{names}")
    for number in (1, 2, 3):
        pods.start(number, at=number)
    pods.eventually(lambda: len(alive(network, 1)) == 3)
    pods.eventually(lambda: {pods.probe(at, path) for at in (1, 2, 3) for path in ("/livez", "/readyz")} == {"200"})
    network.ask(2, "create_table", "carts", {"kind": "hash", "partitions": 4, "replication": 3})
    network.ask(3, "put", "carts", "ana", "two pears", {"level": "all", "timeout_ms": 30_000})
    states = [json.loads(line) for line in (pods.place / "log-1-1").read_text().splitlines() if line.startswith("{")]
    assert [line for line in states if line["level"] in {"warning", "error"}] == []
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pods.first(1)}/status").read_text().splitlines())
    assert (status["Uid"].split()[0], status["NSpid"].split()[-1], int(status["CapEff"], 16)) == (str(USER), "1", 0)
    assert pods.end(2) == 0
    pods.start(2, at=OTHER_PLACE)
    pods.eventually(lambda: pods.probe(OTHER_PLACE, "/readyz") == "200")
    assert network.ask(OTHER_PLACE, "get", "carts", "ana")[0] == "two pears"
    pods.eventually(lambda: alive(network, 1).get("gossipkv-1") == f"gossipkv-1.gossipkv-nodes:{PORT}")
    assert [pods.end(number) for number in (1, 2, 3)] == [0, 0, 0]
