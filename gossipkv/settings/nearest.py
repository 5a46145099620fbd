"""The name that was probably meant, for errors about unknown names."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the known name that was probably meant."""
    return difflib.get_close_matches(name, [*names], n=1, cutoff=0)[0]


def unknown_setting(name: str, names: Iterable[str], prefix: str = "") -> str:
    """Return the error about an unknown setting; `prefix`, which all `names` may share, does not make them similar."""
    bare = {known.removeprefix(prefix): known for known in names}
    meant = bare[nearest(name.removeprefix(prefix), bare)]
    return f"unknown setting {name}; the nearest known setting is {meant} (`gossipkv config` lists all)"


def near(name: str, names: Iterable[str]) -> str:
    """Return words that name the nearest of `names`; empty if none is near."""
    return "".join(f"; the nearest is {found}" for found in difflib.get_close_matches(name, [*names], n=1))
