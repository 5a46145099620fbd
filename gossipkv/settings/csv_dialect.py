"""How the fields of CSV are told apart: the table `csv` of a database's settings."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, fields
from typing import Final, final

# Types that a column of CSV may be given; others are strings.
CSV_TYPES: Final = ("string", "int64", "uint64", "double", "bool", "date32", "timestamp[us]")


@final
@dataclass(frozen=True, slots=True)
class CsvDialect:
    """The dialect of CSV."""

    delimiter: str | None = None  # None: a comma, or TAB in files called .tsv and .tab
    quote: str = '"'  # Empty: nothing is quoted
    escape: str = ""  # Empty: a quote within quotes is doubled
    header: bool = True
    columns: tuple[str, ...] = ()  # The names, where no header has them
    null: tuple[str, ...] = ("",)  # Texts without quotes that are null
    types: tuple[tuple[str, str], ...] = ()  # Columns that are no strings
    encoding: str | None = None  # None: UTF-8, and other bytes pass as they are, with a warning

    @classmethod
    def read(cls, table: dict[str, object]) -> CsvDialect:
        """Return the dialect in a TOML table.

        Raises:
            ValueError: says which setting of the table is wrong, and what it may be.
        """
        values: dict[str, object] = {}
        for name, value in table.items():
            if name not in _READERS:
                raise ValueError(f"unknown setting {name}; the settings are {', '.join(_READERS)}")
            values[name] = _READERS[name](name, value)
        dialect = cls(**values)  # type: ignore[arg-type]  # Each reader gives the type of its field.
        if not dialect.header and not dialect.columns:
            raise ValueError("header = false needs the names of the columns: set columns = [...]")
        return dialect


def _character(name: str, value: object) -> str:
    is_one = isinstance(value, str) and len(value) <= 1 and value.isascii() and value not in {"\n", "\r"}
    if not is_one or (name == "delimiter" and not value):
        raise ValueError(f"{name}: expected one ASCII character, not {value!r}")
    return str(value)


def _switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}: expected true or false, not {value!r}")  # noqa: TRY004  # One error for all.
    return value


def _texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{name}: expected a list of strings, not {value!r}")
    return tuple(value)


def _types(name: str, value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or not all(kind in CSV_TYPES for kind in value.values()):
        raise ValueError(f"{name}: expected a table of columns and their types, each one of {', '.join(CSV_TYPES)}")
    return tuple(value.items())


def _encoding(name: str, value: object) -> str:
    try:
        if isinstance(value, str) and codecs.getincrementaldecoder(value) is not None and value.encode(value):
            return value
    except (LookupError, ValueError):
        pass
    raise ValueError(f"{name}: expected a text encoding that Python knows, such as cp1252 or utf-16, not {value!r}")


_READERS: Final = {
    "delimiter": _character, "quote": _character, "escape": _character, "header": _switch, "columns": _texts,
    "null": _texts, "types": _types, "encoding": _encoding,
}  # fmt: skip
assert list(_READERS) == [item.name for item in fields(CsvDialect)]
