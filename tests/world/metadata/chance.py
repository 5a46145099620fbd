"""Random decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


def happens(draw: Random, share: float) -> bool:
    return draw.random() < share
