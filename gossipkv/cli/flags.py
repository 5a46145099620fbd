"""Settings from a command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import click

from gossipkv.cli.help import Command
from gossipkv.environment import small_file
from gossipkv.settings.config import SETTINGS, SETTINGS_FILE, Config, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.settings.setting import Setting


# The settings that `--help` shows; the others have sensible defaults, and `--help-all` shows them.
FIRST: Final = {
    "Data": ("source", "data", "refresh_period"),
    "Network": ("listen", "advertise", "http_listen"),
    "Cluster": ("cluster", "node", "join", "replication", "key_ring"),
    "Log": ("log_level",),
}
_FIRST_NAMES: Final = [name for names in FIRST.values() for name in names]
_REST_NAMES: Final = [setting.name for setting in SETTINGS if setting.name not in _FIRST_NAMES]
_HELP_ALL: Final = "gossipkv.help_all"


@final
class SettingsCommand(Command):
    """A command that takes `setting_options`; its help has few of them, in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups of settings, then the other options; with `--help-all` also the remaining settings."""
        records = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        remaining = [name for name in records if name not in {*_FIRST_NAMES, *_REST_NAMES}]
        rest = {"Further settings": _REST_NAMES} if ctx.meta.get(_HELP_ALL) else {}
        for title, names in {**FIRST, **rest, "Options": remaining}.items():
            with formatter.section(title):
                formatter.write_dl([record for name in names if (record := records[name]) is not None])


def _help_all(ctx: click.Context, _option: click.Parameter, is_asked: bool) -> None:  # noqa: FBT001  # click's form.
    if is_asked and not ctx.resilient_parsing:
        ctx.meta[_HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _rereadable(ctx: click.Context, _option: click.Parameter, file: Path | None) -> Path | None:
    """Return a path that SIGHUP can read again, also if the file is a pipe."""
    return None if file is None else ctx.with_resource(small_file.rereadable(file.expanduser(), SETTINGS_FILE))


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
    """Return `--config FILE`, `--help-all` and a flag for every setting; values stay text, for `load` to read."""
    file = click.Option(
        ["--config", "file"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        callback=_rereadable,
        help="TOML settings file.  [default: $GOSSIPKV_CONFIG]",
    )
    everything = click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_help_all,
        help=f"Show this help with the other {len(_REST_NAMES)} settings, and exit.",
    )
    return [*(_option(setting) for setting in SETTINGS), file, everything]


Flag = str | bool | tuple[str, ...] | None  # Text; on or off; given any number of times; None if not given.


def load_settings(file: Path | None, flags: Mapping[str, Flag]) -> Config:
    """Return the effective settings of a command that has `setting_options`.

    Raises:
        ConfigError: see `gossipkv.settings.config.load`.
    """
    given = {name: _text(value) for name, value in flags.items()}
    return load(file, os.environ, {name: text for name, text in given.items() if text is not None})


def _text(value: Flag) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return (",".join(value) or None) if isinstance(value, tuple) else value
