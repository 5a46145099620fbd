"""A cluster's directory stores its plan, from which command lines follow."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from pathlib import Path

import pytest

from gossipkv.cli.serve import serve
from gossipkv.errors import ConfigError, Corrupt, LocalError, UnsupportedFormat
from gossipkv.launcher.order import ClusterOrder, Place
from gossipkv.launcher.plan import DOCUMENT, ClusterPlan, NodePlan, check_names, load, merge
from gossipkv.processes.program import order_line, read_order
from gossipkv.settings import config


def flags(plan: ClusterPlan, index: int) -> dict[str, str]:
    command = plan.command(Path("/c"), index)
    after = command[command.index("serve") + 1 :]
    return dict(zip(after[::2], after[1::2], strict=True))


THREE = ClusterPlan([NodePlan(1, 7001), NodePlan(2, 7002), NodePlan(3, 7003)])


def test_command_lines():
    """Each node joins the first; the first joins the others unless it knows their number."""
    assert THREE.command(Path("/c"), 1)[:5] == [sys.executable, "-P", "-m", "gossipkv", "serve"]
    assert flags(THREE, 1) == {
        "--profile": "local", "--time-to-converge": "3s", "--advertise": "as listen", "--data": "/c/n1/data",
        "--backup-roots": "/c/backups",
        "--expected-members": "3",
        "--listen": "127.0.0.1:7001", "--http-listen": "off", "--node": "n1", "--join": "none",
    }  # fmt: skip
    untold = dataclasses.replace(THREE, settings={"expected_members": "unknown"})
    assert flags(untold, 1)["--join"] == "127.0.0.1:7002,127.0.0.1:7003"
    untold = dataclasses.replace(untold, nodes=[NodePlan(1, 7001), NodePlan(2, 0)])
    assert flags(untold, 1)["--join"] == "none"  # The address is unknown yet.
    assert flags(THREE, 3)["--join"] == "127.0.0.1:7001"
    formed = dataclasses.replace(THREE, formed=True)
    assert flags(formed, 1)["--join"] == "127.0.0.1:7002,127.0.0.1:7003"
    assert flags(formed, 2)["--join"] == "127.0.0.1:7001,127.0.0.1:7003"
    beyond = formed.with_node(NodePlan(2, 7002, settings={"advertise": "192.0.2.2:0"}))
    assert flags(beyond, 1)["--join"] == "192.0.2.2:7002,127.0.0.1:7003"


def test_settings_of_cluster_and_node():
    """A node's settings win over the cluster's; its address and name win over both."""
    plan = dataclasses.replace(THREE, source="/s", settings={"cluster": "a", "profile": "lan"})
    assert flags(plan, 2) | {"--cluster": "a", "--profile": "lan", "--source": "/s"} == flags(plan, 2)
    earlier = dataclasses.replace(plan, settings={"source": "/elsewhere"})  # Stored before that was refused.
    assert flags(earlier, 2)["--source"] == "/s"
    own = plan.with_node(NodePlan(2, 7, "::1", {"cluster": "b"}, ["nsenter", "-n"], "x"))
    assert flags(own, 2) | {"--cluster": "b", "--listen": "[::1]:7", "--node": "x"} == flags(own, 2)
    assert own.command(Path("/c"), 2)[:2] == ["nsenter", "-n"]
    assert [node.index for node in own.nodes] == [1, 2, 3]
    assert own.node(1) == THREE.node(1)


@pytest.mark.parametrize("word", ["true", "false", "on", "no"])
def test_what_is_on_or_off_is_read_as_it_was_set(word):
    """A setting that is on or off is a flag without a value on a command line."""
    switches = [setting for setting in config.SETTINGS if setting.kind == "bool"]
    assert switches
    plan = ClusterPlan([NodePlan(1, 7001)], settings={setting.name: word for setting in switches})
    command = plan.command(Path("/c"), 1)
    context = serve.make_context("serve", command[command.index("serve") + 1 :])
    for setting in switches:
        assert context.params[setting.name] is setting.parse(word)


def test_the_environment_says_neither_where_nodes_are_nor_whom_they_join(monkeypatch, tmp_path):
    """Variables of the environment would make the first node join strangers, and give all nodes one address."""
    file = tmp_path / "node.toml"
    file.write_text('join = "192.0.2.1:7"\n')
    monkeypatch.setenv("GOSSIPKV_CONFIG", str(file))
    monkeypatch.setenv("GOSSIPKV_ADVERTISE", "192.0.2.2:7")
    for count in (1, 3):
        plan = ClusterPlan(list(THREE.nodes[:count]), settings={"cluster": "a"}, formed=True)
        said = {flag.removeprefix("--").replace("-", "_"): value for flag, value in flags(plan, 1).items()}
        told = config.load(environ=os.environ, flags=said)
        assert told.join == tuple(node.address for node in THREE.nodes[1:count])
        assert told.advertise is None
    own = THREE.with_node(NodePlan(1, 7001, settings={"advertise": "192.0.2.3:0"}))
    assert flags(own, 1)["--advertise"] == "192.0.2.3:0"


def test_replication_is_every_nodes():
    """Each node gets the same flag, or none."""
    plan = dataclasses.replace(THREE, replication=3)
    assert [flags(plan, index)["--replication"] for index in (1, 2, 3)] == ["3"] * 3
    assert "--replication" not in flags(THREE, 1)


def test_what_is_remembered(tmp_path):
    """A saved plan loads equal; a damaged plan or a later format is an error."""
    assert load(tmp_path) is None
    plan = ClusterPlan(
        [NodePlan(1, 7001, settings={"cluster": "x"}, wrapper=["a"])], "/s", 2, {"profile": "wan"}, formed=True
    )
    plan.save(tmp_path)
    assert load(tmp_path) == plan
    assert [file.name for file in tmp_path.iterdir()] == [DOCUMENT]
    file = tmp_path / DOCUMENT
    body = json.loads(file.read_text())
    for damaged in ("", "[]", "{}", json.dumps({**body, "nodes": 1}), json.dumps({**body, "more": 1})):
        file.write_text(damaged)
        with pytest.raises(Corrupt, match="remove the file to start a new cluster"):
            load(tmp_path)
    file.write_bytes(b'{"format": 1, "source": "/\xff"}')
    with pytest.raises(Corrupt, match="remove the file to start a new cluster"):
        load(tmp_path)
    file.write_text(json.dumps({**body, "format": 2}))
    with pytest.raises(UnsupportedFormat, match="the plan has format 2, and this program reads format 1: a newer"):
        load(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"nodes": [{"index": 1, "port": 70_000}]},
        {"nodes": [{"index": 1, "port": "7070"}]},
        {"nodes": [{"index": 1, "port": 7070, "host": 7}]},
        {"nodes": [{"index": "1", "port": 7070}]},
        {"nodes": [{"index": 2, "port": 7070}]},
        {"nodes": [{"index": 1, "port": 7070}, {"index": 1, "port": 7071}]},
        {"nodes": [{"index": 1, "port": 7070, "called": 7}]},
        {"nodes": [{"index": 1, "port": 7070, "wrapper": [7]}]},
        {"nodes": [{"index": 1, "port": 7070, "settings": {"cluster": 7}}]},
        {"nodes": [], "settings": {"cluster": 7}},
        {"nodes": [], "settings": "cluster"},
        {"nodes": [], "source": 7},
    ],
)
def test_a_plan_that_was_never_saved(tmp_path, changed):
    """Values that no launcher wrote are refused when the plan is loaded."""
    (tmp_path / "cluster.json").write_text(json.dumps({"format": 1, **changed}))
    with pytest.raises(
        Corrupt, match=r"cluster\.json: .*not the plan of a cluster .*; remove the file to start a new cluster"
    ):
        load(tmp_path)


def test_a_remembered_setting_that_there_is_not(tmp_path):
    """The error names the setting, its file, and the nearest name."""
    for plan in (
        dataclasses.replace(THREE, settings={"refresh_perod": "1s"}),
        THREE.with_node(NodePlan(2, 7002, settings={"refresh_perod": "1s"})),
    ):
        plan.save(tmp_path)
        with pytest.raises(UnsupportedFormat, match=r"cluster\.json: unknown setting refresh_perod; .* refresh_period"):
            load(tmp_path)


def test_settings_are_checked():
    """Settings that the launcher chooses, unknown names and bad values are refused; pairs are checked together."""
    stages = {"proxy_timeout": "20s", "proxy_stage_timeout": "1s"}
    for settings in ({"refresh_period": "1s", "cluster": ""}, stages):
        ClusterOrder(settings=settings).plan(None)
    for settings, words in (
        ({"node": "x"}, "node cannot be set here, because the launcher chooses"),
        ({"source": "/s"}, "use --source"),
        ({"replication": "2"}, "use --replication"),
        ({"clustr": "x"}, "nearest known setting is cluster"),
        ({"refresh_period": "1"}, "refresh_period = '1'"),
        ({"min_replication": "2"}, "min_replication"),
    ):
        with pytest.raises(ConfigError, match=words):
            ClusterOrder(replication=1, settings=settings).plan(None)
    remembered = ClusterOrder(replication=2, settings=stages | {"min_replication": "2"}).plan(None)
    for order, words in (
        (ClusterOrder(replication=1), "min_replication"),
        (ClusterOrder(settings={"proxy_timeout": ""}), "proxy_timeout"),
    ):
        with pytest.raises(ConfigError, match=words):
            order.plan(remembered)
    assert merge({"a": "1", "b": "2"}, {"b": "", "c": "3"}) == {"a": "1", "c": "3"}


def test_orders():
    """Missing parts are as remembered or default; a cluster grows and does not shrink."""
    assert [node.index for node in ClusterOrder().plan(None).nodes] == [1, 2, 3]
    assert ClusterOrder(nodes=2, source="/t", settings={"profile": "wan", "cluster": "x"}).plan(None) == ClusterPlan(
        [NodePlan(1, 0), NodePlan(2, 0)], "/t", settings={"profile": "wan", "cluster": "x"}
    )
    remembered = dataclasses.replace(THREE, source="/s", replication=1, formed=True)
    assert ClusterOrder().plan(remembered) == remembered
    assert ClusterOrder(nodes=4, replication=2).plan(remembered) == dataclasses.replace(
        remembered, nodes=[*THREE.nodes, NodePlan(4, 0)], replication=2
    )
    for count, words in ((2, "cannot shrink to 2"), (65, "from 1 to 64 nodes, not 65")):
        with pytest.raises(LocalError, match=words):
            ClusterOrder(nodes=count).plan(remembered)


def test_each_new_cluster_has_a_name_of_its_own(monkeypatch, tmp_path):
    """Two clusters of a machine could meet at a reused port; a given name is kept."""
    monkeypatch.delenv("GOSSIPKV_CLUSTER", raising=False)
    names = {ClusterOrder().plan(None).settings["cluster"] for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch(r"gossipkv-[0-9a-f]{8}", name) for name in names)
    check_names({"cluster": names.pop()})
    remembered = ClusterOrder().plan(None)
    assert ClusterOrder(nodes=4).plan(remembered).settings == remembered.settings
    assert "cluster" not in ClusterOrder(settings={"cluster": ""}).plan(None).settings
    file = tmp_path / "node.toml"
    file.write_text('cluster = "filed"\n')
    for variable, value, name in (("GOSSIPKV_CLUSTER", "mine", "mine"), ("GOSSIPKV_CONFIG", str(file), "filed")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            assert ClusterOrder().plan(None).settings == {"cluster": name}  # Kept for a later `up`.
            assert ClusterOrder().plan(None, {"GOSSIPKV_CLUSTER": "given"}).settings == {"cluster": "given"}
    monkeypatch.setenv("GOSSIPKV_CLUSTER", "no good name")
    with pytest.raises(ConfigError, match="GOSSIPKV_CLUSTER"):
        ClusterOrder().plan(None)


def test_places():
    """Nodes may be placed elsewhere; the number of nodes follows from the places."""
    order = ClusterOrder(places=[Place("10.0.0.1", 70, ["w"]), Place("10.0.0.2", 70)])
    assert read_order(order_line(order), ClusterOrder) == order
    assert order.plan(None).nodes == [NodePlan(1, 70, "10.0.0.1", {}, ["w"]), NodePlan(2, 70, "10.0.0.2")]


def test_each_node_answers_resp_at_a_port_of_its_own():
    """The ports stay for later starts, and a new node gets the next one if the option is repeated."""
    made = ClusterOrder(nodes=2, resp_base_port=6380).plan(None)
    assert [node.settings for node in made.nodes] == [{"resp_listen": f"127.0.0.1:{port}"} for port in (6380, 6381)]
    assert ClusterOrder().plan(made).nodes == made.nodes
    grown = ClusterOrder(nodes=3, resp_base_port=6380).plan(made)
    assert grown.nodes[2].settings == {"resp_listen": "127.0.0.1:6382"}
