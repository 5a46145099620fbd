"""Nodes start with the environment of odd values files of the chart; what no node could take is refused in words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gossipkv.settings.config import load
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, connect
from tests.ci.deploy.test_kubernetes import CHART, HELM, NEWEST, documents, environ_of, pod_of

if not HELM.exists():
    pytest.skip("helm is not installed", allow_module_level=True)

ODD = {
    "numbers": """
        replicas: 1000000
        runAsUser: 1000730000
        fsGroup: 1000730000
        pauseBeforeStopSeconds: 0
        storage: {size: 34359738368}
        settings: {split_rows: 2000000, http_max_connections: 1000000, min_ratio: 0.5, max_parallel_loads: 1.0,
                   min_records: 12345678, allow_empty: true, require_success_file: false}
        """,
    "lists and nulls": """
        secrets: {users: null}
        isolationGroupLabel: null
        settings: {join: ["gossipkv-nodes:7070", "10.0.0.9:7070"], tls_listeners: [listen, resp_listen],
                   key_ring: null, insecure_gossip: "yes", log_format: null, resp_databases: [geo], source: null,
                   http_hosts: [db.example.org, gossipkv],
                   isolation_group: rack-1}
        """,
    "ports": """
        settings: {listen: "0.0.0.0:17171", http_listen: "0.0.0.0:18181", resp_listen: "0.0.0.0:16379",
                   drain_timeout: 1500ms}
        podAnnotations: {example.org/restarted: "2026-11-29"}
        priorityClassName: databases
        imagePullSecrets: [{name: registry}]
        """,
    "texts": """
        settings: {isolation_group: "012", cluster: "1e3", max_token: 64KiB, refresh_period: "off", backup_roots: ~}
        terminationGracePeriodSeconds: 3600
        secrets: {config: gossipkv-config}
        networkPolicy: {clients: []}
        env: [{name: GOSSIPKV_REPLICATION, value: "3"}]
        """,
}
REFUSED = {
    "settings: {databases: {geo: {format: tsv}}}": "databases",
    "settings: {node: n1}": "node",
    "settings: {join: [[a, b]]}": "settings.join",
    "settings: {resp_databases: ['a,b']}": "settings.resp_databases",
    "settings: {min_records: 12345678901234567890}": "settings.min_records",
    "settings: {http_listen: 'off'}": "probes ask the node over HTTP",
    "image: {tag: 20261129}": "image.tag",
    "env: [{name: A, value: 5}]": "env.0.value",
    "replica: 3": "replica",
    "replicas: 2.5": "replicas",
    "{secrets: {tls: pairs}, certManager: {issuer: nodes}}": "both set",
    "{fsGroup: null, certManager: {issuer: nodes}}": "needs fsGroup",
}


def helm(tmp_path: Path, values: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "values.yaml"
    file.write_text(values)
    command = [HELM, "template", "gossipkv", CHART, "--values", file]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)


def rendered(tmp_path: Path, name: str) -> str:
    done = helm(tmp_path, ODD[name])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ODD)
def test_kubernetes_takes_odd_values(tmp_path: Path, name: str) -> None:
    schemas = pytest.importorskip("kubernetes_validate")
    for document in documents(rendered(tmp_path, name)):
        schemas.validate(document, NEWEST, strict=True)


@pytest.mark.parametrize("name", ODD)
def test_a_node_starts_with_odd_values(tmp_path: Path, name: str) -> None:
    """`gossipkv config` accepts the environment, and a node with it becomes ready; paths are below another root."""
    places = {"/etc/gossipkv": tmp_path / "etc", "/var/lib/gossipkv": tmp_path / "var"}
    environ = environ_of(rendered(tmp_path, name), "gossipkv-1", "127.0.0.1")
    for path, place in places.items():
        environ = {variable: text.replace(path, str(place)) for variable, text in environ.items()}
    secrets = {"keys new": "GOSSIPKV_KEY_RING", "users new anonymous --may see --may read:* --file": "GOSSIPKV_USERS"}
    for command, variable in secrets.items():
        if path := environ.get(variable):
            Path(path).parent.mkdir(parents=True)
            made = [sys.executable, "-m", "gossipkv", *command.split(), path]
            subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    if path := environ.get("GOSSIPKV_CONFIG"):
        Path(path).parent.mkdir(parents=True)
        Path(path).write_text('[storage."s3://bucket/backups"]\nkey = "k"\n')
    places["/var/lib/gossipkv"].mkdir()
    command = [sys.executable, "-m", "gossipkv", "config"]
    said = subprocess.run(
        command, check=False, env={**os.environ, **environ}, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert ("GOSSIPKV_CONFIG" in environ) == ("s3://bucket/backups" in said.stdout), said.stdout
    ports = {"GOSSIPKV_LISTEN", "GOSSIPKV_ADVERTISE", "GOSSIPKV_HTTP_LISTEN", "GOSSIPKV_RESP_LISTEN"}
    free = {name: f"{environ[name].partition(':')[0]}:0" for name in ports & environ.keys()}
    with NodeProcess(tmp_path, environ=environ | free) as node:
        node.ready()
        with connect(node.address) as client:
            assert client.call("info")["node"] == "gossipkv-1"
            (member,) = client.members()
            assert member["address"].startswith("gossipkv-1.gossipkv-nodes:")
        assert node.stop() == 0


def test_numbers_are_whole(tmp_path: Path) -> None:
    """Helm reads numbers as floating ones, and would write 2000000 as 2e+06."""
    text = rendered(tmp_path, "numbers")
    environ, pod = environ_of(text, "gossipkv-1", "10.0.0.5"), pod_of(text)
    found = {name: environ[f"GOSSIPKV_{name}"] for name in ("SPLIT_ROWS", "HTTP_MAX_CONNECTIONS", "MIN_RECORDS")}
    assert found == {"SPLIT_ROWS": "2000000", "HTTP_MAX_CONNECTIONS": "1000000", "MIN_RECORDS": "12345678"}
    assert [environ[f"GOSSIPKV_{name}"] for name in ("MIN_RATIO", "ALLOW_EMPTY", "MAX_PARALLEL_LOADS")] == [
        *("0.5", "true", "1")
    ]
    context = pod["securityContext"]
    assert (context["runAsUser"], context["fsGroup"]) == (1_000_730_000, 1_000_730_000)
    (nodes,) = (document for document in documents(text) if document["kind"] == "StatefulSet")
    claim = nodes["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]
    assert (nodes["spec"]["replicas"], str(claim)) == (1_000_000, "34359738368")


def test_lists_are_joined_and_nulls_remove(tmp_path: Path) -> None:
    text = rendered(tmp_path, "lists and nulls")
    config = load(None, environ_of(text, "gossipkv-1", "10.0.0.5"), {})
    assert [str(address) for address in config.join] == ["gossipkv-nodes:7070", "10.0.0.9:7070"]
    assert config.tls_listeners == ("listen", "resp_listen")
    assert (config.key_ring, config.users, config.source, config.log_format) == (None, None, None, "text")
    assert (config.isolation_group, config.resp_databases) == ("rack-1", ("geo",))
    assert config.expected_hosts.split() == [
        *("localhost", "0.0.0.0", "gossipkv-1.gossipkv-nodes", "db.example.org", "gossipkv")
    ]


def test_ports_follow_the_settings(tmp_path: Path) -> None:
    """Containers, services, the policy and the members' addresses have the ports of the settings."""
    text = rendered(tmp_path, "ports")
    pod, config = pod_of(text), load(None, environ_of(text, "gossipkv-1", "10.0.0.5"), {})
    assert (config.advertise.port, [address.port for address in config.join]) == (17171, [17171])
    ports = {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}
    assert ports == {"gossip": 17171, "rpc": 17171, "http": 18181, "resp": 16379}
    found = {document["metadata"]["name"]: document for document in documents(text) if document["kind"] == "Service"}
    assert {port["name"]: port["port"] for port in found["gossipkv"]["spec"]["ports"]} == {
        "rpc": 17171,
        "http": 18181,
        "resp": 16379,
    }
    (policy,) = (document for document in documents(text) if document["kind"] == "NetworkPolicy")
    nodes, clients = policy["spec"]["ingress"]
    assert [(port["port"], port.get("protocol", "TCP")) for port in nodes["ports"]] == [(17171, "TCP"), (17171, "UDP")]
    assert {port["port"] for port in clients["ports"]} == {17171, 18181, 16379}
    assert pod["terminationGracePeriodSeconds"] == 5 + 2 * 2 + 20
    assert (pod["priorityClassName"], pod["imagePullSecrets"]) == ("databases", [{"name": "registry"}])
    (nodes,) = (document for document in documents(text) if document["kind"] == "StatefulSet")
    assert nodes["spec"]["template"]["metadata"]["annotations"] == {"example.org/restarted": "2026-11-29"}


def test_an_empty_list_of_clients_lets_none_in(tmp_path: Path) -> None:
    """For Kubernetes an empty `from` means everybody, so that rule must be absent."""
    text = rendered(tmp_path, "texts")
    (policy,) = (document for document in documents(text) if document["kind"] == "NetworkPolicy")
    assert [[*rule["from"][0]] for rule in policy["spec"]["ingress"]] == [["podSelector"]]
    assert pod_of(text)["terminationGracePeriodSeconds"] == 3600


@pytest.mark.parametrize("values", REFUSED)
def test_what_no_node_could_take_is_refused(tmp_path: Path, values: str) -> None:
    done = helm(tmp_path, values)
    assert done.returncode != 0, done.stdout
    assert REFUSED[values] in done.stderr
