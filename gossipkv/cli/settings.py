"""`config`: every setting."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click
from rich.table import Table
from rich.text import Text

from gossipkv.cli.flags import SettingsCommand, load_settings, setting_options
from gossipkv.cli.options import JSON
from gossipkv.cli.output import print_json
from gossipkv.cli.screen import add_row, console, draw
from gossipkv.settings.config import SETTINGS, Config
from gossipkv.settings.databases import DATABASE_SETTINGS, MINIMUM, DatabaseSetting, DatabaseSettings
from gossipkv.settings.masking import MASK, Option, is_place, leaves, mask_url
from gossipkv.status.words import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gossipkv.cli.flags import Flag
    from gossipkv.settings.setting import Setting
    from gossipkv.wire.rpc import Value


@click.command(cls=SettingsCommand, params=setting_options())
@JSON
def config(file: Path | None, *, as_json: bool, **flags: Flag) -> None:
    """Write every setting with its value, origin, allowed range and meaning.

    The command reads the same file, environment and flags as `serve`, so it shows the settings that a node would use.
    """
    effective = load_settings(file, flags)
    rows = [_row(setting, effective) for setting in SETTINGS]
    rows += _option_rows("storage_options", effective.storage_options, effective)
    for url, options in effective.storage.items():
        rows += _option_rows(f'storage."{mask_url(url)}"', options, effective, "storage")
    for name, settings in effective.databases.items():
        rows += _database_rows(name, settings, effective)
    if as_json:
        print_json(list(rows))
        return
    screen = console()
    if screen.width >= WIDE and len(rows) <= MAX_WIDE_ROWS:
        draw(_wide(rows))
    else:
        draw(_narrow(rows))


MAX_WIDE_ROWS: Final = 500  # Folding the columns of a thousand databases takes a second.
WIDE: Final = 120  # Columns that fit all fields in one line; on a narrower terminal the meaning gets its own.
_COLUMNS: Final = ("setting", "value", "from", "allowed", "meaning")


def _wide(rows: list[dict[str, Value]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in _COLUMNS:
        styles = {"setting": "cyan", "from": "dim", "allowed": "dim"}
        table.add_column(name, style=styles.get(name), no_wrap=name in {"setting", "value"}, overflow="fold")
    for row in rows:
        add_row(table, *(plain(row[name]) for name in _COLUMNS))
    return table


def _narrow(rows: list[dict[str, Value]]) -> Text:
    text = Text()
    for row in rows:
        text.append(f"{plain(row['setting']):<22}", "cyan").append(f"{plain(row['value'])}  ")
        text.append(f"{plain(row['from'])}\n    {plain(row['meaning'])}\n", "dim")
    text.right_crop(1)
    return text


def _database_rows(name: str, settings: DatabaseSettings, effective: Config) -> Iterator[dict[str, Value]]:
    """Yield the rows of a database's settings in the file."""
    for setting in DATABASE_SETTINGS:
        path = f"databases.{name}.{setting.name}"
        if path not in effective.origins:
            continue
        if setting.name in MINIMUM:
            minimum = MINIMUM[setting.name].show(settings.minimum[setting.name])
            yield _file_row(path, minimum, effective.origin(path), setting)
            continue
        value = getattr(settings, setting.name)
        if setting.name in {"storage_options", "catalog"}:
            yield from _option_rows(path, value or {}, effective)
        else:
            shown = asdict(value) if setting.name == "csv" else mask_url(value) if setting.name == "table" else value
            yield _file_row(path, shown, effective.origin(path), setting)


def _option_rows(
    path: str, options: Mapping[str, Option], effective: Config, within: str = ""
) -> Iterator[dict[str, Value]]:
    """Yield a row for each option of a store; values are masked except for places."""
    for name, value in leaves(options):
        shown = mask_url(str(value)) if is_place(name) else MASK
        yield _file_row(f"{path}.{name}", shown, effective.origin(within or path), STORAGE_OPTION)


STORAGE_OPTION: Final = DatabaseSetting("storage_options", "none", "options of the store", "an option of the store", "")


def _file_row(path: str, value: Value, origin: str, setting: DatabaseSetting) -> dict[str, Value]:
    return _row_of(path, value, origin, setting, unit="text")


def _row(setting: Setting, effective: Config) -> dict[str, Value]:
    value = getattr(effective, setting.name)
    shown = None if value is None else setting.show(value)
    row = _row_of(setting.name, shown, effective.origin(setting.name), setting, unit=setting.kind)
    return {**row, "environment": setting.variable, "flag": setting.flag}


def _row_of(path: str, value: Value, origin: str, of: Setting | DatabaseSetting, *, unit: str) -> dict[str, Value]:
    return {
        "setting": path,
        "value": value,
        "from": origin,
        "default": of.default,
        "unit": unit,
        "allowed": of.allowed,
        "meaning": of.meaning,
        "why": of.why,
        "environment": None,
        "flag": None,
    }
