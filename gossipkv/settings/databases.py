"""Settings of one database: the tables `[databases.NAME]` of the settings file.

Only the file has them, since a database's name is data, and makes no good flag or variable. A setting that a table
omits is detected from the data, or is the node's setting of that name.

`hold` pins a version: the way back from a bad version, since versions never go back by themselves. The tables are read
again on SIGHUP.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, final

from gossipkv.errors import ConfigError
from gossipkv.settings.csv_dialect import CsvDialect
from gossipkv.settings.http import MEDIA_TYPE_FORM, is_media_type
from gossipkv.settings.nearest import nearest, unknown_setting
from gossipkv.settings.setting import THOUSANDTHS, count, ratio, say, switch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.settings.masking import Option
    from gossipkv.settings.setting import Setting

FORMATS: Final = ("sequence", "tsv", "csv", "json", "parquet", "arrow", "orc", "avro", "sorted")
# The whole database is a table of this kind, and its snapshots are the versions.
TABLE_FORMATS: Final = ("delta", "iceberg")
ENCODINGS: Final = ("json", "msgpack")
NULLS: Final = ("omit", "null")
PRESHARDED: Final = ("probe", "declared", "never")

# Leaves room for a suffix below the 255 bytes that file systems allow.
MAX_NAME_CHARACTERS: Final = 200
# A longer name of a column or field is a mistake.
MAX_FIELD_CHARACTERS: Final = 1_000
MAX_FIELDS: Final = 4_096

_NAME: Final = re.compile(r"[-_a-zA-Z0-9]+")
# The rule for names, in messages.
NAMES: Final = f"names match [-_a-zA-Z0-9]+ and have at most {MAX_NAME_CHARACTERS} characters"


def is_name(name: str) -> bool:
    """Return True if a database or version may have this name."""
    return _NAME.fullmatch(name) is not None and len(name) <= MAX_NAME_CHARACTERS


# Begins the name of a hidden table: a backup is being restored into it, and clients do not see it.
HIDDEN: Final = "."


def is_table_name(name: str) -> bool:
    """Return True if a table may have this name, or a hidden table."""
    return is_name(name.removeprefix(HIDDEN))


@dataclass(frozen=True, kw_only=True)
class MinimumSettings:
    """Minimum records of a new version; a database's table may override each setting."""

    min_records: int = count(
        0, 0, 1_000_000_000_000,
        meaning="records that a new version needs to become active; the same on every node",
        why="only the owner of a database knows its size",
    )  # fmt: skip
    min_ratio: int = ratio(
        "off",
        meaning=(
            "records that a new version needs to become active, as a share of the active version's; the same on "
            "every node"
        ),
        why="some databases shrink rightly, and only their owners know which",
    )  # fmt: skip
    allow_empty: bool = switch(
        default=False,
        meaning="let versions without records become active; the same on every node",
        why="an empty version is almost always a failed export",
    )  # fmt: skip

    def shortage(self, records: int, before: str | None, records_before: int | None) -> str | None:
        """Return the reason for which a version of so many records must not become active; None: it may.

        `before`: the active version; `records_before`: its number of records.
        """
        if records == 0 and not self.allow_empty:
            return "the version has no records, and `allow_empty` is false"
        has = f"the version has {records:,} records"
        if records < self.min_records:
            return f"{has}, and `min_records` is {self.min_records:,}"
        if records_before is not None and records * THOUSANDTHS < records_before * self.min_ratio:
            return (
                f"{has}, version {before} has {records_before:,}, and `min_ratio` is {self.min_ratio / THOUSANDTHS:g}"
            )
        return None


# The node's settings that a table may override.
MINIMUM: Final[Mapping[str, Setting]] = MappingProxyType(
    {item.name: item.metadata["setting"] for item in fields(MinimumSettings)}
)


def minimum_of(node: MinimumSettings, database: DatabaseSettings) -> MinimumSettings:
    """Return the settings of a database: its table's, else the node's."""
    values = {name: getattr(node, name) for name in MINIMUM} | dict(database.minimum)
    return MinimumSettings(**values)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    """The settings of one database."""

    format: str | None = None  # None: detected from the data
    table: str | None = field(default=None, repr=False)  # None: the database's directory; a URL may hold a password
    catalog: Mapping[str, Option] | None = field(default=None, repr=False)
    key: str | tuple[str, ...] = "key"
    value: str | tuple[str, ...] = "value"
    separator: str | None = None  # None: several fields of a key are a MessagePack array
    encoding: str = "json"
    nulls: str = "omit"
    csv: CsvDialect = field(default_factory=CsvDialect)
    hold: str | None = None
    presharded: str | None = None  # None: the node's
    content_type: str | None = None  # None: the node's
    storage_options: Mapping[str, Option] | None = field(default=None, repr=False)  # None: the root's
    minimum: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # Missing: the node's

    @property
    def is_table(self) -> bool:
        """True if the versions are the snapshots of a Delta or Iceberg table."""
        return self.format in TABLE_FORMATS

    @property
    def file_format(self) -> str | None:
        """Return the format of the files; None: detected from the data."""
        return "parquet" if self.is_table else self.format


@final
@dataclass(frozen=True, slots=True)
class DatabaseSetting:
    """A database's setting as shown to people."""

    name: str
    default: str
    allowed: str
    meaning: str
    why: str


DATABASE_SETTINGS: Final = (
    DatabaseSetting(
        "format", "detected from the data", " or ".join(FORMATS + TABLE_FORMATS),
        "format of the files; with delta and iceberg, each snapshot of the table is a version",
        "most formats are recognised by their content",
    ),
    DatabaseSetting(
        "table", "the database's directory in the source", "a directory or an fsspec URL, an Iceberg metadata file, "
        "or a name in the catalog", "place of the Delta or Iceberg table", "most tables have a directory of their own",
    ),
    DatabaseSetting(
        "catalog", "none", "a table", "properties of the Iceberg catalog, for pyiceberg",
        "a metadata file, or the directory of a Hadoop table, needs no catalog",
    ),
    DatabaseSetting(
        "key", "key", "a name, or a list of names", "field or fields of the key, for files with columns",
        "the most common name",
    ),
    DatabaseSetting(
        "value", "value", "a name, a list of names, or * for all",
        "field of the value, or the fields of rows", "the most common name",
    ),
    DatabaseSetting(
        "separator", "none", "a string",
        "separator between the fields of a key; without it, the fields form a MessagePack array",
        "any other bytes could be part of a field",
    ),
    DatabaseSetting("encoding", "json", " or ".join(ENCODINGS), "encoding of rows", "every language can read JSON"),
    DatabaseSetting(
        "nulls", "omit", " or ".join(NULLS), "treatment of null fields in rows: omitted, or null", "rows stay short"
    ),
    DatabaseSetting(
        "csv", "header, commas and quotes", "a table", "dialect and encoding of CSV",
        "the dialect of most programs",
    ),
    DatabaseSetting(
        "hold", "none", "a version", "serve this version, even if newer ones exist",
        "most clients want the newest version",
    ),
    DatabaseSetting(
        "presharded", "the node's", " or ".join(PRESHARDED),
        "skip source files of partitions that this node does not need", "one rule for all databases suffices for most",
    ),
    DatabaseSetting(
        "content_type", "the node's", MEDIA_TYPE_FORM,
        "media type of the values by HTTP", "one rule for all databases suffices for most",
    ),
    DatabaseSetting(
        "storage_options", "the root's", "a table", "options to reach the object store of this database",
        "most databases are in one store",
    ),
    *(
        DatabaseSetting(name, "the node's", setting.allowed, setting.meaning, setting.why)
        for name, setting in MINIMUM.items()
    ),
)  # fmt: skip
_WORDS: Final = {"format": FORMATS + TABLE_FORMATS, "presharded": PRESHARDED, "encoding": ENCODINGS, "nulls": NULLS}
_NAMES: Final = tuple(setting.name for setting in DATABASE_SETTINGS)
_ALLOWED: Final = {setting.name: setting.allowed for setting in DATABASE_SETTINGS}


class Where(Protocol):
    """Returns the place of a name: `where("geo", "format")` is `FILE:12`."""

    def __call__(self, *names: str) -> str: ...


def read_databases(table: object, where: Where) -> Mapping[str, DatabaseSettings]:
    """Return the settings in the TOML table `databases`; `where("geo", "format")` is the place of a part.

    Raises:
        ConfigError: names the error, its place, and the allowed values.
    """
    if not isinstance(table, dict):
        raise _wrong("databases", where(), "expected a table [databases.NAME] for each database")
    found = {}
    for name, settings in table.items():
        if not is_name(name):
            raise _wrong(f"databases.{name}", where(name), f"not the name of a database: {NAMES}")
        if not isinstance(settings, dict):
            raise _wrong(f"databases.{name}", where(name), f"expected a table [databases.{name}]")
        found[name] = _read(name, settings, where)
    return MappingProxyType(found)


def read_options(table: object, name: str, where: Where) -> Mapping[str, Option]:
    """Return the table of a store's options called `name`; messages show none of its values.

    Raises:
        ConfigError: a value is no string, number, true, false or table of those.
    """
    if not isinstance(table, dict):
        raise _wrong(name, where(), "expected a table with the options of the object store")
    read: dict[str, Option] = {}
    for key, value in table.items():

        def inner(*rest: str, key: str = key) -> str:
            return where(key, *rest)

        if isinstance(value, dict):
            read[key] = read_options(value, f"{name}.{key}", inner)
        elif isinstance(value, str | bool | int | float):
            read[key] = value
        else:
            raise _wrong(f"{name}.{key}", inner(), "expected a string, a number, true, false, or a table of these")
    return read


def _read(name: str, table: dict[str, object], where: Where) -> DatabaseSettings:
    values: dict[str, object] = {}
    minimum: dict[str, int] = {}
    for key, value in table.items():
        path = f"databases.{name}.{key}"
        if key not in _ALLOWED:
            raise ConfigError(
                f"{where(name, key)}: databases.{name}: {unknown_setting(key, _NAMES)}",
                {"setting": path, "where": where(name, key)},
            )
        if key in {"storage_options", "catalog"}:
            values[key] = read_options(value, path, lambda *rest, key=key: where(name, key, *rest))
        elif key == "csv":
            values[key] = _read_csv(value, path, where(name, key))
        elif key in MINIMUM:
            minimum[key] = _read_minimum(MINIMUM[key], value, path, where(name, key))
        elif isinstance(value, list) and key in {"key", "value"}:
            values[key] = _read_columns(key, value, path, where(name, key))
        else:
            values[key] = _read_text(key, value, path, where(name, key))
    kinds = ("iceberg",) if "catalog" in table else TABLE_FORMATS
    if ("table" in table or "catalog" in table) and values.get("format") not in kinds:
        given = "catalog" if "catalog" in table else "table"
        path = f"databases.{name}.{given}"
        raise _wrong(path, where(name, given), f"needs format = {' or '.join(map(repr, kinds))}")
    if "catalog" in table and "table" not in table:
        raise _wrong(
            f"databases.{name}.catalog",
            where(name, "catalog"),
            "needs the table's name in the catalog: set table = ...",
        )
    return DatabaseSettings(
        **values,  # type: ignore[arg-type]  # Each reader gives the type of its field.
        minimum=MappingProxyType(minimum),
    )


def _read_minimum(setting: Setting, value: object, path: str, place: str) -> int:
    try:
        read = setting.parse(say(value) if isinstance(value, bool) else str(value))
    except ValueError as error:
        raise _wrong(path, place, f"{value!r}: {error}; allowed: {setting.allowed}") from None
    assert isinstance(read, int), path
    return read


def _read_csv(value: object, path: str, place: str) -> CsvDialect:
    if not isinstance(value, dict):
        raise _wrong(path, place, "expected a table")
    try:
        return CsvDialect.read(value)
    except ValueError as error:
        raise _wrong(path, place, str(error)) from None


def _read_columns(key: str, value: list[object], path: str, place: str) -> tuple[str, ...]:
    names = tuple(_read_text(key, name, path, place) for name in value)
    if not 0 < len(names) <= MAX_FIELDS or len(set(names)) < len(names):
        raise _wrong(path, place, f"expected 1 to {MAX_FIELDS:,} distinct names")
    return names


def _read_text(key: str, value: object, path: str, place: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, place, f"{value!r}: expected a string; allowed: {_ALLOWED[key]}")
    words = _WORDS.get(key)
    if words is not None and value not in words:
        raise _wrong(
            path, place, f"{value!r}: the nearest allowed value is {nearest(value, words)}; allowed: {_ALLOWED[key]}"
        )
    if key == "hold" and not is_name(value):
        raise _wrong(path, place, f"{value!r}: not the name of a version: {NAMES}")
    if key == "content_type" and not is_media_type(value):
        raise _wrong(path, place, f"{value!r}: not a media type; allowed: {MEDIA_TYPE_FORM}")
    if not 0 < len(value) <= MAX_FIELD_CHARACTERS:
        raise _wrong(path, place, f"expected 1 to {MAX_FIELD_CHARACTERS:,} characters")
    return value


def _wrong(path: str, place: str, problem: str) -> ConfigError:
    return ConfigError(f"{place}: {path}: {problem}", {"setting": path, "where": place})
