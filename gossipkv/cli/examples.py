"""Two invocations of each command, for its help."""

from __future__ import annotations

from typing import Final

# By command: what follows its name.
EXAMPLES: Final = {
    "demo": ("", "--json"),
    "serve": ("--source /srv/datasets", "--source /srv/datasets --listen 10.0.0.1:7070 --join 10.0.0.2:7070"),
    "cluster up": ("--nodes 3 --source /srv/datasets", "--nodes 3 --set log_level=debug --detach"),
    "cluster status": ("", "--json"),
    "cluster kill": ("2", "2 --signal STOP"),
    "cluster start": ("2", "2 --port 7090"),
    "cluster down": ("", "--now"),
    "http": ("--listen 127.0.0.1:8080", "--node 10.0.0.1:7070 --node 10.0.0.2:7070 --allow-writes"),
    "config": ("", "--config gossipkv.toml --json"),
    "get": ("capitals france", "capitals france --node 10.0.0.1:7070 --json"),
    "mget": ("capitals france peru", "capitals - < keys.txt"),
    "scan": ("capitals --limit 10", "capitals --prefix f --json"),
    "put": ("carts ana '3 apples'", "carts ana --ttl 30d < cart.json"),
    "delete": ("carts ana", "carts 0x616e61 --hex --level all"),
    "publish": ("capitals export --dry-run", "capitals export --version 2026-11-20 --wait"),
    "rollback": ("capitals", "capitals 2026-11-19"),
    "databases hold": ("capitals 2026-11-19", "capitals 2026-11-19 --local"),
    "databases release": ("capitals", "capitals --local"),
    "refresh": ("", "capitals --json"),
    "build": ("export sorted", "export.csv sorted --partitions 16 --key name"),
    "table create": ("carts --kind hash --replication 3", "events --kind range --bound 2026-06 --bound 2026-09"),
    "table list": ("", "--json"),
    "table show": ("carts", "carts --json"),
    "table drop": ("carts", "carts --timeout 30s"),
    "table import": ("carts carts.tsv", "carts *.jsonl --key-field user --value-field cart --state import.state"),
    "table export": ("carts carts.tsv", "carts carts.parquet --prefix a"),
    "table changes": ("carts", "carts --start snapshot --limit 100"),
    "table delete-range": ("events --prefix 2024-", "events 2024-01 2024-07"),
    "table plan": ("", "carts --json"),
    "table reshard": ("carts 2", "carts 1"),
    "table split": ("events 2026-09", "events 0x00ff --hex"),
    "table join": ("events 2026-09 n4", "events 0x00ff n4 --hex"),
    "table leave": ("events 2026-09 n4", "events 0x00ff n4 --hex"),
    "table force-join": ("events 2026-09 n1", "carts 3 n1 --shard --yes"),
    "table partitions": ("events", "events --json"),
    "table quarantine list": ("", "n3 --json"),
    "table quarantine drop": ("n3 2", "n3 2 3 --yes"),
    "backup create": ("/srv/backups", "s3://bucket/backups --table carts --since 2026-11-28-172218-dbe6"),
    "backup list": ("/srv/backups", "s3://bucket/backups --json"),
    "backup verify": ("/srv/backups", "s3://bucket/backups --newest"),
    "backup expire": ("/srv/backups --keep 14", "/srv/backups 2026-11-28-172218-dbe6"),
    "restore": ("/srv/backups", "/srv/backups --table carts --as carts-before"),
    "status": ("", "capitals --wait"),
    "ping": ("", "--node 10.0.0.1:7070"),
    "members": ("", "--watch"),
    "tree": ("", "members --all"),
    "node list": ("", "--json"),
    "node add": ("n4", "n4 --isolation-group zone-a --weight 2"),
    "node remove": ("n3", "n3 --force"),
    "node replace": ("n2 n5", "n3 n3 --force"),
    "node weight": ("n4 2", "n4 1"),
    "metadata status": ("", "carts --json"),
    "metadata join": ("n4", "n4 --table carts"),
    "metadata leave": ("n2", "n2 --table carts"),
    "metadata replace": ("n2 n4", "n3 n3"),
    "metadata force": ("--survivor n1", "--survivor n1 --table carts --yes"),
    "keys new": ("/etc/gossipkv/keys", "keys"),
    "keys list": ("/etc/gossipkv/keys", "/etc/gossipkv/keys --json"),
    "keys install": ("/etc/gossipkv/keys", "/etc/gossipkv/keys --from new-keys"),
    "keys use": ("/etc/gossipkv/keys 0f1e2d3c", "keys 0f1e2d3c"),
    "keys remove": ("/etc/gossipkv/keys 0f1e2d3c", "keys 0f1e2d3c"),
    "users new": ("ana --may 'read:geo*' --file users > ana.token", "probe --may see --no-token --file users"),
    "users list": ("--file users", "--file users --json"),
    "users remove": ("ana --file users", "ana --file /etc/gossipkv/users"),
    "certificates new": ("certificates", "certificates n1 --host 10.0.0.1 --host n1.example.org"),
    "inspect": ("part-00000.sorted", "data --json"),
    "verify": ("data", "--table carts"),
    "loadtest": ("--db capitals --duration 10s", "--db capitals --rate 1000 --fail-if 'p99>2ms'"),
}


def examples_of(path: str) -> list[str]:
    """Return the two examples of a command; of a group, the first ones of its first two commands."""
    names = [name for name in EXAMPLES if not path or f"{name} ".startswith(f"{path} ")]
    found = [[f"gossipkv {name} {rest}".rstrip() for rest in EXAMPLES[name]] for name in names[:2]]
    return found[0] if len(found) == 1 else [lines[0] for lines in found]
