"""The line of cron in docs/operators/backups.md makes a backup at a node with TLS and users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.ci.cluster.pages import blocks_of
from tests.ci.cluster.terminal import Reader

if TYPE_CHECKING:
    from pathlib import Path

MOMENT_S = 60


def test_the_line_of_cron_makes_a_backup(tmp_path: Path) -> None:
    """Two nights at a node with TLS and users leave two backups."""
    (block,) = (block for block in blocks_of("docs/operators/backups.md") if block.language == "cron")
    *variables, line = block.text.splitlines()
    *when, user, command = line.split(maxsplit=6)
    assert (len(when), user) == (5, "gossipkv")
    places = "--certificate /etc/gossipkv/n1.pem --key /etc/gossipkv/n1.key".replace("--", "--tls-")
    with Reader(tmp_path) as reader:

        def typed(text: str) -> str:
            said = reader.type(text.replace("/opt/gossipkv/bin/", ""), within_s=MOMENT_S)
            assert said.status == 0, (text, said.text)
            return said.text

        typed("umask 077; mkdir -p /etc/gossipkv /var/lib; gossipkv certificates new /etc/gossipkv")
        typed("gossipkv certificates new /etc/gossipkv n1 --host 127.0.0.1")
        typed("gossipkv users new backup --may operate --file /etc/gossipkv/users > /etc/gossipkv/backup.token")
        allowed = "--users /etc/gossipkv/users --backup-roots /var/lib/gossipkv-backups"
        reader.type(f"gossipkv serve --data /var/lib/gossipkv {places} {allowed}")
        typed("; ".join(f"export {variable}" for variable in variables))
        typed("gossipkv table create carts --kind hash $CONNECTION")
        for _ in range(2):
            assert "0 records of carts" in typed(command)
        assert len(typed("gossipkv backup list $DESTINATION $CONNECTION").splitlines()) == 2
