"""Every setting: its default, unit, range, meaning and why; and the one way to load them.

The fields of `Config` are the list.  A field's type is what the program sees (durations in milliseconds, sizes in
bytes, rates in bytes per second); its `Setting` is what people see (`10m`, `64KiB`, `20MiB/s`).  Flags, environment
names, `gossipkv config` and `docs/operators/settings.md` are all derived from it, so nothing is said twice.

Three sources, the later wins: a TOML file, the environment (`GOSSIPKV_REFRESH_PERIOD`), a flag (`--refresh-period`).
An unknown name in any of them is an error that names the nearest known one: a misspelt limit must not be a limit
that silently is not there.

One name needs care: `GOSSIPKV_NODE` tells the client commands which node to ask, so this node's own name is
`GOSSIPKV_NODE_NAME` in the environment (and plainly `node` in a file, `--node` as a flag of `serve`).

Two things stand in the file alone: `[storage_options]`, how the store of the source is reached, and the tables
`[databases.NAME]` (`gossipkv.settings.databases`).

Rules for whoever edits this file: a setting exists only while it has an effect; its `why` says why the default is
what it is; zero is allowed only where it has a name (`off`).
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from gossipkv.address import Address, parse_address
from gossipkv.errors import ConfigError
from gossipkv.settings.databases import PRESHARDED, DatabaseSettings, nearest, read_databases, read_options
from gossipkv.settings.masking import Option, is_url, mask_url
from gossipkv.settings.setting import (
    NAME_FORM,
    PREFIX,
    Setting,
    choice,
    count,
    duration,
    plain,
    rate,
    read_addresses,
    read_advertised,
    read_name,
    read_path,
    read_source,
    say,
    size,
    switch,
)
from gossipkv.settings.toml_lines import line_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.settings.setting import Value

FILE_VARIABLE: Final = "GOSSIPKV_CONFIG"
# Read by others than `load`: the file's name, the client commands' node, and the build's own switches.
RESERVED: Final = frozenset({FILE_VARIABLE, "GOSSIPKV_NODE", "GOSSIPKV_DEBUG", "GOSSIPKV_SANITIZE"})

_HALF: Final = -1


def _default_data() -> Path:
    from platformdirs import user_data_path  # noqa: PLC0415  # Only a node that was not told asks; clients do not pay.

    return user_data_path("gossipkv", appauthor=False)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The effective settings of one node; durations in ms, sizes in bytes, rates in bytes per second."""

    source: str | None = field(
        default=None,
        repr=False,  # It may hold a password.
        metadata=plain(
            "path", "none", "a directory or an fsspec URL", read_source,
            meaning="source root; below it DATABASE/VERSION/FILES",
            why="without one a node serves what it has already built",
        ),
    )  # fmt: skip
    data: Path = field(
        default_factory=_default_data,
        metadata=plain(
            "path", "a platform data directory", "a directory that this node alone uses", read_path,
            meaning="where this node keeps its files; locked",
            why="the place where the system expects a program's own data",
        ),
    )  # fmt: skip
    listen: Address = field(
        default=Address("127.0.0.1", 7070),
        metadata=plain(
            "address", "127.0.0.1:7070", "HOST:PORT, port 0 for any free one", parse_address,
            meaning="where the node answers MessagePack-RPC, and gossip on the same number over UDP",
            why="only this machine, as long as there is no authentication",
        ),
    )  # fmt: skip
    advertise: Address | None = field(
        default=None,
        metadata=plain(
            "address", "as listen", "HOST:PORT, port 0 for that of listen", read_advertised,
            meaning="where other nodes reach this one",
            why="as listen; where that is every interface, the address that leads to the first of join",
        ),
    )  # fmt: skip
    cluster: str = field(
        default="gossipkv",
        metadata=plain(
            "text", "gossipkv", NAME_FORM, read_name,
            meaning="name of the cluster; a data directory belongs to one cluster",
            why="one cluster is what most machines run",
        ),
    )  # fmt: skip
    node: str | None = field(
        default=None,
        metadata=plain(
            "text", "kept in data", NAME_FORM, read_name,
            meaning="this node's name",
            why="drawn at the first start, so that two nodes never share one by accident",
        ),
    )  # fmt: skip
    join: tuple[Address, ...] = field(
        default=(),
        metadata=plain(
            "addresses", "none", "HOST:PORT, several with commas between", read_addresses,
            meaning="addresses or names of some members of the cluster",
            why="without any a node begins a cluster of its own, or goes back to the one it knows",
        ),
    )  # fmt: skip
    profile: str = choice(
        "lan", ("lan", "wan", "local"),
        meaning="constants of gossip by the network between the nodes: probe interval 1 s, 5 s or 0.5 s",
        why="most clusters stand in one place; the same on every node",
    )  # fmt: skip
    shard_id: int = count(
        0, 1, 1_000_000, words={"auto": 0},
        meaning="this node's place in the ring; nodes may share one on purpose",
        why="auto: the smallest free number, kept in data",
    )  # fmt: skip
    time_to_converge: int = duration(
        "10s", "100ms", "1h",
        meaning="how long a claim of a shard id must stand until it counts",
        why="many times what a change takes to every node",
    )  # fmt: skip
    key_ring: Path | None = field(
        default=None,
        metadata=plain(
            "path", "none", "a file of keys that this user alone can read", read_path,
            meaning="keys that seal gossip; needs the extra `secure`",
            why="without one gossip is as open as everything else a node says",
        ),
    )  # fmt: skip
    seal: str = choice(
        "require", ("accept", "send", "require"),
        meaning="with keys: read sealed gossip too and send plain; send sealed too; take nothing that is plain",
        why="keys are for this; the other two are steps on the way there in a running cluster",
    )  # fmt: skip
    max_members: int = count(
        4096, 2, 65_536,
        meaning="members remembered, the dead among them; further ones are not taken in",
        why="four times the largest cluster that was tried",
    )  # fmt: skip
    max_branch_keys: int = count(
        65_536, 16, 1_048_576,
        meaning="keys that one node may have in the tree",
        why="a node with 16 databases of 4,096 partitions has as many",
    )  # fmt: skip
    max_entry: int = size(
        "4KiB", "256B", "32KiB",
        meaning="longest key of the tree, path and value together",
        why="values say who has what; what is long belongs elsewhere",
    )  # fmt: skip
    max_tree: int = size(
        "256MiB", "1MiB", "64GiB",
        meaning="all keys and values of the tree, of all nodes",
        why="room for two million partitions, held by each node in memory",
    )  # fmt: skip

    refresh_period: int = duration(
        "1m", "100ms", "7d", zero="off",
        meaning="time between two scans of the source",
        why="new versions come by the hour or day; a scan lists directories only",
    )  # fmt: skip
    retire_after: int = duration(
        "10m", "0s", "30d",
        meaning="time since the last request for an old version until it is removed",
        why="long enough for a reader that pinned a version to finish its work",
    )  # fmt: skip
    max_parallel_loads: int = count(
        2, 1, 64,
        meaning="versions built at once, each in a child process",
        why="one large database does not hold up a small one, and cores are left for serving",
    )  # fmt: skip
    throttle_loads: int = rate(
        "off", "64KiB/s", "1TiB/s", zero="off",
        meaning="bytes read per second from the source, for all builds together",
        why="off: most sources are local or can defend themselves",
    )  # fmt: skip
    require_success_file: bool = switch(
        default=False,
        meaning="take only versions that hold a file named _SUCCESS",
        why="Hadoop and Spark write it last; a plain copy does not",
    )  # fmt: skip
    presharded: str = choice(
        "probe", PRESHARDED,
        meaning="whether files of partitions that are not wanted here may be skipped: found out, as declared, never",
        why="a key that contradicts is noticed whenever it is met, and the version is then read in full",
    )  # fmt: skip
    build_memory: int = size(
        "256MiB", "64MiB", "1TiB",
        meaning="most memory that the process of one build uses",
        why="a build of any size fits beside the node on a small machine",
    )  # fmt: skip
    build_lanes: int = count(
        0, 1, 64, words={"auto": 0},
        meaning="most processes that share the work of one build",
        why="auto: one for each core but one, which is left for serving",
    )  # fmt: skip
    compression: str = choice(
        "none", ("none", "lz4"),
        meaning="how records are kept in built files",
        why="uncompressed reads touch two cache lines; lz4 pays when data is larger than memory",
    )  # fmt: skip

    max_frame: int = size(
        "17MiB", "64KiB", "17MiB",
        meaning="largest request",
        why="holds the largest value with its key; clients, too, read nothing longer",
    )  # fmt: skip
    max_depth: int = count(
        32, 4, 32,
        meaning="containers within containers in a request",
        why="the scanner has room for 32; plain requests need 4",
    )  # fmt: skip
    max_elements: int = count(
        16_384, 12_288, 1_048_576,
        meaning="elements in a request, keys and values of maps each",
        why="a get_many of 16,000 keys holds up others for about 2 ms; clients ask for more in parts",
    )  # fmt: skip
    max_key: int = size(
        "65535B", "1B", "65535B",
        meaning="longest key in a request",
        why="the longest that a sorted file can hold",
    )  # fmt: skip
    max_value: int = size(
        "16MiB", "1B", "16MiB",
        meaning="longest value in an answer; a longer one is refused as TOO_LARGE",
        why="the longest that a sorted file can hold",
    )  # fmt: skip
    max_connections: int = count(
        10_000, 1, 1_000_000,
        meaning="connections open at once; further ones are closed",
        why="each costs a descriptor and a few KiB",
    )  # fmt: skip
    max_connections_per_address: int = count(
        _HALF, 1, 1_000_000, words={"half": _HALF, "off": 0},
        meaning="those of one IPv4 address or one IPv6 network of 64 bits; further ones are closed",
        why="half of max_connections: no one can take all; off where everybody comes through one proxy",
    )  # fmt: skip
    max_in_flight: int = count(
        1000, 1, 100_000,
        meaning="unanswered requests of one connection before its reading pauses",
        why="ten times what a pipelining client needs to hide a round trip",
    )  # fmt: skip
    max_in_flight_total: int = count(
        65_536, 1, 1_000_000,
        meaning="unanswered requests of all connections; a further one is refused as OVERLOADED",
        why="an answer that takes time holds a task of some KiB",
    )  # fmt: skip
    max_queued: int = size(
        "4MiB", "64KiB", "1GiB",
        meaning="answers waiting for one connection's peer before its reading pauses",
        why="a peer that does not read must not hold the node's memory",
    )  # fmt: skip
    max_queued_total: int = size(
        "256MiB", "1MiB", "1TiB",
        meaning="requests and answers held for all connections; beyond, whoever holds most is closed",
        why="room for 15 of the largest requests, or 64 peers that do not read",
    )  # fmt: skip
    frame_timeout: int = duration(
        "10s", "100ms", "1h",
        meaning="time for a half-sent request to arrive whole",
        why="the largest request needs 3 s on a 100 Mbit/s line",
    )  # fmt: skip
    output_timeout: int = duration(
        "10s", "100ms", "1h",
        meaning="time in which a peer takes nothing of the answers that wait for it, until it is closed",
        why="longer than a client's pause for garbage collection; its answers are held meanwhile",
    )  # fmt: skip
    idle_timeout: int = duration(
        "1h", "1s", "30d", zero="off",
        meaning="time without a request until a connection is closed",
        why="clients keep connections; those that vanished without a word must end one day",
    )  # fmt: skip
    drain_timeout: int = duration(
        "10s", "0s", "1h",
        meaning="time for requests in flight to be answered when the node stops",
        why="well below the 30 s after which supervisors kill",
    )  # fmt: skip
    busy_poll: str = choice(
        "auto", ("auto", "on", "off"),
        meaning="whether the node looks out for the next request for up to 50 µs before it sleeps",
        why="auto: while requests follow each other that closely, and only if it may run on a second core",
    )  # fmt: skip
    scan_limit: int = count(
        1000, 1, 100_000,
        meaning="most records in one answer to a scan",
        why="a long scan comes in pages, so it holds up no one for more than a moment",
    )  # fmt: skip

    log_level: str = choice(
        "info", ("debug", "info", "warning", "error"),
        meaning="least level of the log lines written",
        why="info is a few lines a start, and one for each change",
    )  # fmt: skip
    log_format: str = choice(
        "text", ("text", "json"),
        meaning="form of the log lines on standard error",
        why="text for people; json for a collector",
    )  # fmt: skip

    databases: Mapping[str, DatabaseSettings] = field(default_factory=lambda: MappingProxyType({}))
    storage_options: Mapping[str, Option] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)

    @property
    def connections_per_address(self) -> int:
        """How many connections one address may have; 0 is no limit."""
        if self.max_connections_per_address == _HALF:
            return max(1, self.max_connections // 2)
        return self.max_connections_per_address

    def origin(self, name: str) -> str:
        """Where the value of setting `name` came from; `default` if from nowhere."""
        return self.origins.get(name, "default")


def _settings() -> Iterable[Setting]:
    for item in dataclasses.fields(Config):
        setting = item.metadata.get("setting")
        if isinstance(setting, Setting):
            yield dataclasses.replace(setting, name=item.name)


SETTINGS: Final = tuple(_settings())
_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}
_BY_VARIABLE: Final = {setting.variable: setting for setting in SETTINGS}


def _unknown(what: str, where: str, known: Iterable[str]) -> ConfigError:
    # Compared without the prefix that all variables share: it would make everything look near.
    bare = {name.removeprefix(PREFIX): name for name in known}
    meant = bare[nearest(what.removeprefix(PREFIX), bare)]
    return ConfigError(
        f"{where}: unknown setting {what}; the nearest known one is {meant} (`gossipkv config` lists all)",
        {"setting": what, "where": where},
    )


def _value(setting: Setting, text: str, where: str) -> Value:
    try:
        return setting.parse(text)
    except ValueError as error:
        raise ConfigError(
            f"{where}: {setting.name} = {mask_url(text)!r}: {error}; allowed: {setting.allowed}",
            {"setting": setting.name, "where": where},
        ) from None


@final
class _File:
    """A settings file, read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ConfigError(f"{path}: cannot read the settings: {reason}") from None
        try:
            self._table = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"\(at line (\d+), column \d+\)$", str(error))
            where = f"{path}:{found[1]}" if found else str(path)
            raise ConfigError(f"{where}: not TOML: {error}") from None
        self.origins: dict[str, str] = {}

    def where(self, *names: str) -> str:
        """The place of a name, for messages."""
        line = line_of(self._text, *names)
        return str(self.path) if line is None else f"{self.path}:{line}"

    def settings(self) -> Iterable[tuple[Setting, str, str]]:
        """What stands at the top, as text."""
        for name, value in self._table.items():
            if name in _TABLES:
                continue
            where = self.where(name)
            setting = _BY_NAME.get(name)
            if setting is None:
                raise _unknown(name, where, [*_BY_NAME, *_TABLES])
            yield setting, _text_of(setting, value, where), where

    def databases(self) -> Mapping[str, DatabaseSettings]:
        """The tables `[databases.NAME]`."""
        table = self._table.get("databases", {})
        found = read_databases(table, lambda *names: self.where("databases", *names))
        for name in found:
            for key in table[name]:
                self.origins[f"databases.{name}.{key}"] = self.where("databases", name, key)
        return found

    def storage_options(self) -> Mapping[str, Option]:
        """The table `[storage_options]`."""
        if "storage_options" in self._table:
            self.origins["storage_options"] = self.where("storage_options")
        return read_options(
            self._table.get("storage_options", {}),
            "storage_options",
            lambda *names: self.where("storage_options", *names),
        )


def _text_of(setting: Setting, value: object, where: str) -> str:
    """A TOML value as the text that the environment would hold; TOML's own types must fit the kind."""
    if isinstance(value, bool):
        fits = setting.kind == "bool"
        text = say(value)
    elif isinstance(value, list):
        fits = setting.kind == "addresses" and all(isinstance(one, str) for one in value)
        text = ",".join(map(str, value))
    elif isinstance(value, int):
        fits = setting.kind == "count" or value == 0
        text = str(value)
    else:
        plain = setting.kind not in {"bool", "count"} or value in setting.allowed.split(", or ")
        fits = isinstance(value, str) and plain
        text = str(value)
    if not fits:
        words = {"bool": "true or false", "count": "a number", "addresses": "a string or an array of strings"}
        wanted = words.get(setting.kind, "a string")
        raise ConfigError(
            f"{where}: {setting.name} = {value!r}: expected {wanted}; allowed: {setting.allowed}",
            {"setting": setting.name, "where": where},
        )
    return text


def _from_environment(environ: Mapping[str, str]) -> Iterable[tuple[Setting, str, str]]:
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in RESERVED:
            continue
        setting = _BY_VARIABLE.get(variable)
        if setting is None:
            raise _unknown(variable, "environment", _BY_VARIABLE)
        yield setting, environ[variable], f"environment {variable}"


def _from_flags(flags: Mapping[str, str]) -> Iterable[tuple[Setting, str, str]]:
    for name, text in flags.items():
        setting = _BY_NAME.get(name)
        if setting is None:
            raise _unknown(name, "flags", _BY_NAME)
        yield setting, text, f"flag {setting.flag}"


_TABLES: Final = ("databases", "storage_options")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def load(
    file: str | Path | None = None,
    environ: Mapping[str, str] = _NOTHING,
    flags: Mapping[str, str] = _NOTHING,
) -> Config:
    """The effective settings; `flags` are named like settings, and `file` falls back to `GOSSIPKV_CONFIG`.

    Raises:
        ConfigError: a name is unknown, or a value malformed or out of its range; says what, where, and what is allowed.
    """
    named = file if file is not None else environ.get(FILE_VARIABLE) or None
    found: list[tuple[Setting, str, str]] = []
    tables: dict[str, Mapping[str, DatabaseSettings] | Mapping[str, Option]] = {}
    origins: dict[str, str] = {}
    if named is not None:
        read = _File(Path(named).expanduser())
        found += read.settings()
        tables = {"databases": read.databases(), "storage_options": read.storage_options()}
        origins = read.origins
    found += _from_environment(environ)
    found += _from_flags(flags)
    values: dict[str, Value] = {}
    for setting, text, where in found:  # Every value is checked, also one that a later source overrides.
        values[setting.name] = _value(setting, text, where)
        origins[setting.name] = where
    config = Config(origins=MappingProxyType(origins))
    for name, value in (values | tables).items():
        object.__setattr__(config, name, value)  # Frozen for everybody else: nobody has seen it yet.
    if config.source is not None and not is_url(config.source):
        for name, where in origins.items():
            if name.endswith("storage_options"):
                raise ConfigError(
                    f"{where}: {name}: the source {config.source} is a directory, which has no such options; a URL has",
                    {"setting": name, "where": where},
                )
    return config
