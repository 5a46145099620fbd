"""The node's certificate follows its settings and reloads changed files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
import trio

from gossipkv.address import Address
from gossipkv.environment.real_files import RealClock
from gossipkv.errors import ConfigError
from gossipkv.node import certificate
from gossipkv.node.certificate import LOOK_PERIOD_S, Certificate
from gossipkv.settings.config import Config
from tests.unit.serving.secured import NOW, Authority
from tests.world.logs import capture_logs

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from gossipkv.serving._transport import Tls
    from tests.unit.serving.secured import Pair


class Threads:
    """Threads that run their call at once."""

    async def run(self, function, *arguments, **_):
        await trio.lowlevel.checkpoint()
        return function(*arguments)


def made(config, *use):
    """Return a keeper with the certificate as it is now."""
    return Certificate(config, RealClock(), Threads(), certificate.read(config), *use)


class Node:
    """A node's certificate, and the values that the pumps were given."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.authority = Authority(directory)
        self.pair = self.authority.pair("node", "localhost")
        self.config = Config(tls_certificate=self.pair.certificate, tls_key=self.pair.key, **settings)
        self.used: list[Tls] = []
        self.certificate = made(self.config, self.used.append)

    async def looks(self) -> None:
        await trio.sleep(LOOK_PERIOD_S + 0.1)
        await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
async def node(tmp_path: Path, nursery: trio.Nursery) -> Node:
    """Return a node that uses its certificate already."""
    node = Node(tmp_path)
    await nursery.start(node.certificate.run)
    assert len(node.used) == 1
    return node


async def test_files_that_do_not_change(node: Node, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens until the ticket keys are old."""
    for _ in range(3):
        await node.looks()
    assert len(node.used) == 1
    monkeypatch.setattr(certificate, "TICKETS_PERIOD_S", 4 * LOOK_PERIOD_S)
    await node.looks()
    assert len(node.used) == 2


async def test_another_pair(node: Node, autojump_clock: MockClock) -> None:
    """A new pair is used and logged when both halves are there; until then the old pair stays, with one log line."""
    other = node.authority.pair("other", "localhost", began=NOW.replace(year=NOW.year + 1))
    before_s = node.certificate.expires_s
    with capture_logs() as logs:
        os.replace(other.certificate, node.pair.certificate)
        for _ in range(3):
            await node.looks()
        assert node.certificate.expires_s == before_s
        assert [entry["event"] for entry in logs] == ["certificate_unchanged"]
        assert str(node.pair.certificate) in logs[0]["reason"]
        os.replace(other.key, node.pair.key)
        await node.looks()
        assert [entry["event"] for entry in logs[1:]] == ["certificate"]
    assert len(node.used) == 2
    assert node.certificate.expires_s == node.used[1].expires_s > before_s


async def test_one_that_is_over(tmp_path: Path, nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """A node starts with an expired certificate and logs it; as a replacement it is refused."""
    over = NOW.replace(year=NOW.year - 1)
    authority = Authority(tmp_path)
    pair = authority.pair("node", "localhost", began=over)
    config, used = Config(tls_certificate=pair.certificate, tls_key=pair.key), []
    kept = made(config, used.append)
    with capture_logs() as logs:
        await nursery.start(kept.run)
        authority.pair("node", "localhost")
        await kept.read_again()
        authority.pair("node", "localhost", began=over)
        await kept.read_again()
    assert [entry["event"] for entry in logs] == ["certificate_over", "certificate", "certificate_unchanged"]
    assert "the certificate expired at " in logs[2]["reason"]
    assert len(used) == 2
    assert kept.expires_s == used[1].expires_s > NOW.timestamp()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    """The start fails with advice."""
    pair = Authority(tmp_path).pair("node", "localhost")
    pair.key.chmod(mode)
    with pytest.raises(ConfigError, match=rf"{pair.key}: .* the tls_key \(mode {mode:04o}\); run `chmod 600` on it"):
        certificate.read(Config(tls_certificate=pair.certificate, tls_key=pair.key))


async def test_a_new_key_that_others_may_read(node: Node, autojump_clock: MockClock) -> None:
    """The old pair stays until the mode is fixed."""
    node.authority.pair("node", "localhost")
    node.pair.key.chmod(0o644)
    with capture_logs() as logs:
        await node.looks()
    assert [entry["event"] for entry in logs] == ["certificate_unchanged"]
    assert "chmod 600" in logs[0]["reason"]
    node.pair.key.chmod(0o600)
    await node.looks()
    assert len(node.used) == 2


async def test_files_that_are_gone_for_a_moment(node: Node, autojump_clock: MockClock) -> None:
    """The old pair stays, and later files are used."""
    kept = node.pair.key.read_bytes()
    node.pair.key.unlink()
    await node.looks()
    assert len(node.used) == 1
    node.pair.key.write_bytes(kept)
    node.pair.key.chmod(0o600)
    await node.looks()
    assert len(node.used) == 2


async def test_a_word_from_whoever_runs_the_node(node: Node, autojump_clock: MockClock) -> None:
    """`read_again` reads the files at once, changed or not."""
    await node.certificate.read_again()
    assert len(node.used) == 2


async def test_a_node_without_one(nursery: trio.Nursery) -> None:
    used: list[Tls] = []
    without = made(Config(), used.append)
    await nursery.start(without.run)
    await without.read_again()
    assert without.expires_s is None
    assert used == []


@pytest.mark.parametrize("name", ["tls_certificate", "tls_key", "tls_clients", "tls_peers"])
def test_one_setting_without_the_others(tmp_path: Path, name: str) -> None:
    """Any of these files shows the wish for TLS."""
    with pytest.raises(ConfigError, match=name):
        certificate.read(Config(**{name: tmp_path / "a.pem"}))


def test_nodes_that_are_to_know_each_other(tmp_path: Path) -> None:
    """Settings that would stop nodes later are refused: no uuid, no TLS where they dial, no authority."""
    authority = Authority(tmp_path)
    uuid, at = UUID(int=1), (Address("10.0.0.2", 7070),)
    named, unnamed = authority.pair("named", uuid=uuid), authority.pair("unnamed", "localhost")

    def read(pair: Pair, **settings: object) -> Tls | None:
        return certificate.read(Config(tls_certificate=pair.certificate, tls_key=pair.key, **settings))

    assert read(named, tls_peers=authority.path, join=at).uuid == uuid.bytes
    assert read(named).uuid == uuid.bytes
    assert read(unnamed).uuid is None
    assert read(unnamed, tls_peers=authority.path, node="localhost").names == ("localhost",)
    assert read(unnamed, tls_listeners=("resp_listen",), join=at) is not None
    for pair, settings, reason in [
        (unnamed, {"tls_peers": authority.path}, "neither a uuid nor the name of this node .*`node`: not set"),
        (unnamed, {"tls_peers": authority.path, "node": "n1"}, "neither a uuid nor the name of this node .*`node`: n1"),
        (named, {"tls_peers": authority.path, "tls_listeners": ("resp_listen",)}, "tls_peers applies to `listen`"),
        (named, {"join": at}, "tls_certificate: nodes that join each other by TLS need tls_peers"),
        (named, {"tls_peers": named.key}, "tls_peers = .*expected certificates of authorities"),
    ]:
        with pytest.raises(ConfigError, match=reason):
            read(pair, **settings)


async def test_a_pair_of_another_node(tmp_path: Path, nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """The pair is not used, since a node's uuid is fixed while it runs."""
    authority = Authority(tmp_path)
    pair = authority.pair("node", uuid=UUID(int=1))
    config = Config(tls_certificate=pair.certificate, tls_key=pair.key, tls_peers=authority.path)
    used: list[Tls] = []
    kept = made(config, used.append)
    await nursery.start(kept.run)
    authority.pair("node", uuid=UUID(int=2))
    with capture_logs() as logs:
        await kept.read_again()
    assert [entry["event"] for entry in logs] == ["certificate_unchanged"]
    assert f"it must belong to the node {UUID(int=1).hex}" in logs[0]["reason"]
    assert len(used) == 1
    authority.pair("node", "node")
    await kept.read_again()
    authority.pair("node", uuid=UUID(int=1))
    await kept.read_again()
    assert len(used) == 2
