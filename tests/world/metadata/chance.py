"""What happens by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


def happens(draw: Random, share: float) -> bool:
    """Draw whether something happens that does so in this share of cases."""
    return draw.random() < share
