"""All settings together, and the one way to load them.

The fields of `Config` are the list. Each has its default, unit, range, meaning and reason in its section:
`NodeSettings` here, then `http`, `access`, `gossip`, `datasets`, `tables`, `serving`. A field has the program's type
(ms, bytes, bytes per second); its `Setting` has the form for people (`10m`, `64KiB`, `20MiB/s`). Flags, environment
names, `gossipkv config` and `docs/reference/settings.md` are derived from it.

There are three sources, and the later wins: a TOML file, the environment (`GOSSIPKV_REFRESH_PERIOD`), a flag
(`--refresh-period`). An unknown name is an error that names the nearest known one, since a misspelt limit would
silently not apply. `GOSSIPKV_NODE` tells client commands which node to ask, so this node's name is `GOSSIPKV_NODE_NAME`
in the environment. Only the file has tables: `[storage_options]`, for the store of the source, `[storage."URL"]`, for
others, and `[databases.NAME]`.

Rules for editors of a section: a setting exists only while it has an effect; its `why` gives the reason for the
default; zero is allowed only if it has a name (`off`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from gossipkv.address import Address, parse_address
from gossipkv.environment import small_file
from gossipkv.errors import ConfigError
from gossipkv.settings.access import AccessSettings
from gossipkv.settings.databases import DatabaseSettings, read_databases, read_options
from gossipkv.settings.datasets import DatasetSettings, ReplicationSettings, SourceSettings
from gossipkv.settings.gossip import GossipSettings
from gossipkv.settings.http import HttpSettings, expected_hosts
from gossipkv.settings.masking import Option, is_url, mask_url
from gossipkv.settings.nearest import unknown_setting
from gossipkv.settings.node_variables import NODE_VARIABLE, TOKEN_VARIABLE, asked_nodes
from gossipkv.settings.quantity import DURATION, show
from gossipkv.settings.serving import RespSettings, ServingSettings
from gossipkv.settings.setting import (
    PREFIX,
    UNITS,
    Setting,
    choice,
    described,
    plain,
    read_advertised,
    read_ip_address,
    read_path,
    say,
)
from gossipkv.settings.stores import BackupSettings, is_plain_url
from gossipkv.settings.tables import TableSettings
from gossipkv.settings.toml_lines import line_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.settings.setting import Value

FILE_VARIABLE: Final = "GOSSIPKV_CONFIG"
SETTINGS_FILE: Final = small_file.Kind("settings file", 1 << 20, is_private=False)
# Read elsewhere than in `load`: the file's name, the client commands' node, and the build's own switches.
RESERVED: Final = frozenset({FILE_VARIABLE, NODE_VARIABLE, TOKEN_VARIABLE, "GOSSIPKV_DEBUG", "GOSSIPKV_SANITIZE"})

# Kubernetes describes services named gossipkv or gossipkv-http to each pod of the namespace by such variables.
KUBERNETES: Final = re.compile(
    rf"{PREFIX}(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)=.*"
    rf"|{PREFIX}(?:\w+_)?PORT=(?:tcp|udp|sctp)://.*"  # `PORT=7070`, however, is an unknown setting.
)


def _default_data() -> Path:
    from platformdirs import user_data_path  # noqa: PLC0415  # Imported only for the default, so clients do not pay.

    with contextlib.suppress(RuntimeError):  # Without a home directory, `load` refuses the default if it is needed.
        return user_data_path("gossipkv", appauthor=False)
    return Path("~")


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """Directory and addresses of a node."""

    data: Path = field(
        default_factory=_default_data,
        metadata=described(
            "path", "a platform data directory", "a directory that only this node uses", read_path,
            meaning="directory of this node's files; locked while the node runs",
            why="the system's standard place for a program's data",
        ),
    )  # fmt: skip
    listen: Address = plain(
        Address("127.0.0.1", 7070), "address", "127.0.0.1:7070", "HOST:PORT; port 0 means any free port", parse_address,
        meaning="address for clients and other nodes: MessagePack-RPC over TCP, and gossip over UDP at the same port",
        why="only this machine, since there is no authentication by default",
    )  # fmt: skip
    advertise: Address | None = plain(
        None, "address", "as listen", "HOST:PORT; port 0 means the port of `listen`", read_advertised,
        meaning="address at which others reach this node; if it is a name, clients are told the name",
        why="if `listen` is every interface, the local address of the route to the first node of `join`",
    )  # fmt: skip
    advertise_address: str | None = plain(
        None, "text", "as resolved", "an IPv4 or IPv6 address", read_ip_address,
        meaning="address of the name in `advertise`, if the name service knows it late or has an old one",
        why="other nodes need a numeric address",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Log on standard error."""

    log_level: str = choice(
        "info", ("debug", "info", "warning", "error"),
        meaning="lowest level of log lines to write",
        why="a few lines per start, and one for each change",
    )  # fmt: skip
    log_format: str = choice(
        "text", ("text", "json"),
        meaning="format of log lines on standard error",
        why="text for people, json for log collectors",
    )  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True)
class Config(
    LogSettings,
    BackupSettings,
    ServingSettings,
    TableSettings,
    ReplicationSettings,
    DatasetSettings,
    GossipSettings,
    AccessSettings,
    RespSettings,
    HttpSettings,
    NodeSettings,
    SourceSettings,
):
    """The effective settings of one node; durations in ms, sizes in bytes, rates in bytes per second.

    A part of a node declares its section as parameter type and is passed this. A dataclass takes the fields of its
    bases from the last to the first, which is the order of settings for people.
    """

    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)

    @property
    def expected_hosts(self) -> str:
        """The names that `Host` may have, separated by spaces; empty: any."""
        own = (self.listen, self.advertise, self.http_listen)
        return "" if self.users else expected_hosts(own, self.http_hosts)

    def origin(self, name: str) -> str:
        """Return the source of the value of setting `name`, or `default`."""
        return self.origins.get(name, "default")


def _settings() -> Iterable[Setting]:
    for item in dataclasses.fields(Config):
        setting = item.metadata.get("setting")
        if isinstance(setting, Setting):
            yield dataclasses.replace(setting, name=item.name)


SETTINGS: Final = tuple(_settings())
_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}
_BY_VARIABLE: Final = {setting.variable: setting for setting in SETTINGS}


def _unknown(setting: str, where: str, names: Iterable[str]) -> ConfigError:
    words = unknown_setting(setting, names, PREFIX)
    return ConfigError(f"{where}: {words}", {"setting": setting, "where": where})


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
    """A parsed settings file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = small_file.read_text(path, SETTINGS_FILE)
        try:
            self._table = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"\(at line (\d+), column \d+\)$", str(error))
            where = f"{path}:{found[1]}" if found else str(path)
            raise ConfigError(f"{where}: the file is not TOML: {error}") from None
        self.origins: dict[str, str] = {}

    def where(self, *names: str) -> str:
        """Return the place of a name, for messages."""
        line = line_of(self._text, *names)
        return str(self.path) if line is None else f"{self.path}:{line}"

    def settings(self) -> Iterable[tuple[Setting, str, str]]:
        """Yield the top-level settings, as text."""
        for name, value in self._table.items():
            if name in _TABLES:
                continue
            where = self.where(name)
            setting = _BY_NAME.get(name)
            if setting is None:
                raise _unknown(name, where, [*_BY_NAME, *_TABLES])
            yield setting, _text_of(setting, value, where), where

    def databases(self) -> Mapping[str, DatabaseSettings]:
        """Return the tables `[databases.NAME]`."""
        table = self._table.get("databases", {})
        found = read_databases(table, lambda *names: self.where("databases", *names))
        for name in found:
            for key in table[name]:
                self.origins[f"databases.{name}.{key}"] = self.where("databases", name, key)
        return found

    def options(self, table: str) -> Mapping[str, Option]:
        """Return the table `[storage_options]`, or those in `[storage]`."""
        if table in self._table:
            self.origins[table] = self.where(table)
        return read_options(self._table.get(table, {}), table, lambda *names: self.where(table, *names))

    def storage(self) -> Mapping[str, Mapping[str, Option]]:
        """Return the tables `[storage."URL"]`, by URL."""
        found: dict[str, Mapping[str, Option]] = {}
        for url, options in self.options("storage").items():
            if not isinstance(options, dict) or not is_plain_url(url):
                where = self.where("storage", url)
                words = f"{where}: storage.{mask_url(url)!r}: expected the URL of one store, and a table of its options"
                raise ConfigError(words, {"setting": "storage", "where": where})
            found[url] = options
        return found


_LISTED: Final = ("addresses", "places", "hosts")


def _text_of(setting: Setting, value: object, where: str) -> str:
    """Return a TOML value as the text that the environment would hold; TOML's own types must fit the kind."""
    if isinstance(value, bool):
        fits = setting.kind == "bool"
        text = say(value)
    elif isinstance(value, list):
        fits = setting.kind in _LISTED and all(isinstance(item, str) for item in value)
        text = ",".join(map(str, value))
    elif isinstance(value, int | float):  # A missing unit is reported when the text is parsed.
        fits = setting.kind in {"ratio", *UNITS} or (isinstance(value, int) and setting.kind == "count")
        text = str(value)
    else:
        plain = setting.kind not in {"bool", "count"} or value in setting.allowed.split(", or ")
        fits = isinstance(value, str) and plain
        text = str(value)
    if not fits:
        lists = dict.fromkeys(_LISTED, "a string or an array of strings")
        words = {"bool": "true or false", "count": "a number", **lists}
        wanted = words.get(setting.kind, "a string")
        raise ConfigError(
            f"{where}: {setting.name} = {value!r}: expected {wanted}; allowed: {setting.allowed}",
            {"setting": setting.name, "where": where},
        )
    return text


def _from_environment(environ: Mapping[str, str]) -> Iterable[tuple[Setting, str, str]]:
    try:
        asked_nodes(environ)
    except ValueError as error:
        raise ConfigError(f"environment {error}", {"where": "environment"}) from None
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in RESERVED:
            continue
        setting = _BY_VARIABLE.get(variable)
        if setting is None and KUBERNETES.fullmatch(f"{variable}={environ[variable]}"):
            continue
        if setting is None:
            raise _unknown(variable, "environment", _BY_VARIABLE)
        yield setting, environ[variable], f"environment {variable}"


def _from_flags(flags: Mapping[str, str]) -> Iterable[tuple[Setting, str, str]]:
    for name, text in flags.items():
        setting = _BY_NAME.get(name)
        if setting is None:
            raise _unknown(name, "flags", _BY_NAME)
        yield setting, text, f"flag {setting.flag}"


_TABLES: Final = ("databases", "storage_options", "storage")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def load(
    file: str | Path | None = None,
    environ: Mapping[str, str] = _NOTHING,
    flags: Mapping[str, str] = _NOTHING,
) -> Config:
    """Load the effective settings; `flags` are named like settings, and `file` falls back to `GOSSIPKV_CONFIG`.

    Raises:
        ConfigError: a name is unknown, or a value is malformed or out of range; names the place and the allowed values.
    """
    named = file if file is not None else environ.get(FILE_VARIABLE) or None
    found: list[tuple[Setting, str, str]] = []
    tables: dict[str, Mapping[str, object]] = {}
    origins: dict[str, str] = {}
    if named is not None:
        read = _File(Path(named).expanduser())
        found += read.settings()
        tables = {
            "databases": read.databases(), "storage_options": read.options("storage_options"), "storage": read.storage()
        }  # fmt: skip
        origins = read.origins
    found += _from_environment(environ)
    found += _from_flags(flags)
    values: dict[str, Value] = {}
    for setting, text, where in found:  # Every value is checked, even if a later source overrides it.
        values[setting.name] = _value(setting, text, where)
        origins[setting.name] = where
    config = Config(origins=MappingProxyType(origins))
    for name, value in (values | tables).items():
        object.__setattr__(config, name, value)  # The dataclass is frozen, but this object is still private.
    _refuse_contradictions(config)
    return config


def _refuse_contradictions(config: Config) -> None:
    """Refuse settings that contradict each other, though each is valid alone."""

    def refuse(name: str, other: str, why: str) -> ConfigError:
        where = config.origin(name if config.origin(name) != "default" else other)
        return ConfigError(f"{where}: {why}", {"setting": name, "where": where})

    if config.origin("data") == "default" and not config.data.is_absolute():
        raise ConfigError(
            f"data: user {os.geteuid()} has no home directory for the default; give a directory with --data",
            {"setting": "data", "where": "default"},
        )
    if config.min_replication > config.replication:
        raise refuse(
            "min_replication", "replication",
                f"min_replication = {config.min_replication} is above replication = {config.replication}, so "
                "no partition could reach it; lower min_replication",
        )  # fmt: skip
    stages = (config.replication + 1) * config.stage_timeout
    if stages > config.proxy_timeout and config.proxy_stage_timeout:
        raise refuse(
            "proxy_stage_timeout", "proxy_timeout",
                f"proxy_timeout = {show(config.proxy_timeout, DURATION)} is shorter than replication + 1 = "
                f"{config.replication + 1} stages of {show(config.stage_timeout, DURATION)}, so some replicas "
                "would not be asked; raise proxy_timeout",
        )  # fmt: skip
    if config.source is not None and not is_url(config.source):
        tables = {f"databases.{name}.storage_options" for name, database in config.databases.items() if database.table}
        for name, where in config.origins.items():
            if name.endswith("storage_options") and name not in tables:
                raise ConfigError(
                    f"{where}: {name}: the source {config.source} is a directory; only a source by URL has such "
                    "options",
                    {"setting": name, "where": where},
                )
