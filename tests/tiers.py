"""The tier of a test: README's line, `slow` (continuous integration) or `night`.

The file's name gives the tier, so that unselected files are not imported: `test_x.py` is in the line, `test_x_slow.py`
and `test_x_night.py` run with `-m slow` and `-m night`, or if a command names them. All of `tests/ci` is slow, and all
of `tests/nightly` belongs to the night.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from _pytest.mark.expression import Expression

if TYPE_CHECKING:
    import pytest

TIERS = ("slow", "night")
FOLDERS = {"ci": "slow", "nightly": "night"}
TESTS = Path(__file__).parent


def suffix(path: Path) -> str | None:
    """Return the tier in the name of a file."""
    return next((tier for tier in TIERS if path.stem.endswith(f"_{tier}")), None)


@cache
def tier_of(path: Path) -> str:
    """Return the tier of a file: its suffix, else its folder, else the line."""
    folders = (tier for folder, tier in FOLDERS.items() if path.is_relative_to(TESTS / folder))
    return suffix(path) or next(folders, "line")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files that `-m` cannot select; without `-m`, files whose name has another tier."""
    arguments = {config.invocation_params.dir / argument.partition("::")[0] for argument in config.args}
    if collection_path.suffix != ".py" or collection_path in arguments:
        return None
    if not (selected := config.option.markexpr):
        return suffix(collection_path) is not None or None
    tier = tier_of(collection_path)
    return not Expression.compile(selected).evaluate(lambda name, **_: name == tier) or None


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(tier_of(item.path))
