"""How a command line becomes settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gossipkv.settings.config import SETTINGS, Config, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.settings.setting import Setting


def _option(setting: Setting) -> click.Option:
    names = [setting.flag, setting.name]
    if setting.kind == "bool":
        names[0] += f"/{setting.off_flag}"
    return click.Option(
        names,
        type=bool if setting.kind == "bool" else str,
        default=None,
        multiple=setting.kind == "addresses",
        metavar=None if setting.kind == "bool" else _metavar(setting),
        help=f"{setting.meaning[:1].upper()}{setting.meaning[1:]}.  [default: {setting.default}]",
    )


def _metavar(setting: Setting) -> str:
    return {"address": "HOST:PORT", "addresses": "HOST:PORT", "choice": "|".join(setting.allowed.split(" or "))}.get(
        setting.kind, setting.kind.upper()
    )


def setting_options() -> list[click.Parameter]:
    """`--config FILE` and a flag for every setting; the values stay text, for `load` to read."""
    file = click.Option(
        ["--config", "file"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="TOML file of settings.  [default: $GOSSIPKV_CONFIG]",
    )
    return [file, *(_option(setting) for setting in SETTINGS)]


Flag = str | bool | tuple[str, ...] | None  # Given, on or off, given any number of times, not given.


def load_settings(file: Path | None, flags: Mapping[str, Flag]) -> Config:
    """The effective settings of a command that has `setting_options`.

    Raises:
        ConfigError: see `gossipkv.settings.config.load`.
    """
    given = {name: _text(value) for name, value in flags.items()}
    return load(file, os.environ, {name: text for name, text in given.items() if text is not None})


def _text(value: Flag) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return (",".join(value) or None) if isinstance(value, tuple) else value
