"""Each byte of a sorted file is changed once, and no answer is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import Corrupt, UnsupportedFormat
from tests.unit.storage import test_sorted_file_damage as usual
from tests.unit.storage.examination import MET, REFUSED, place_of
from tests.unit.storage.test_sorted_file_damage import FOOTER, Sample, changed, outcomes, verify

if TYPE_CHECKING:
    from collections.abc import Callable

whole = usual.whole


@pytest.mark.parametrize(
    "change",
    [
        lambda byte, _: byte ^ 0xFF,
        lambda byte, at: byte ^ 1 << at % 8,
        lambda byte, at: byte ^ 1 << (at + 4) % 8,
        lambda _byte, _at: 0,
    ],
    ids=["inverted", "one bit", "another bit", "zeroed"],
)
def test_every_byte_changed(whole: Sample, change: Callable[[int, int], int]) -> None:
    """The file is refused, the damage is found, or all answers stay right; `verify` notices each change."""
    image = whole.image
    images = {at: changed(image, at, new) for at, old in enumerate(image) if (new := change(old, at)) != old}
    missed = []
    for at, damaged in images.items():
        try:
            verify(damaged)
        except (Corrupt, UnsupportedFormat) as error:
            place_of(error, len(image))
        else:
            missed.append(at)
    assert missed == []
    whole.examine.questions.clear()
    counts = outcomes(whole, images.values())
    assert counts.total() == len(images) > (len(image) - 3000 if change(7, 0) else 5000)
    assert counts[REFUSED] >= (8 + 4 + 4 + FOOTER if change(0, 0) else 50)  # Magic, format, chunk checksum, footer.
    assert counts[MET] == len(images) - counts[REFUSED], "the questions touch every page, so all damage is met"
    assert min(whole.examine.questions.values()) > len(images), "and only where it is"
