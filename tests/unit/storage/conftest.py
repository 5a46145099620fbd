"""Fixtures of the storage tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gossipkv.storage import compression

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["none", "lz4", "lz4 in Python"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield a compression; lz4 comes once with its compiled functions and once with the package's Python functions."""
    if request.param == "lz4 in Python":
        assert not compression.install(native=False)
    yield request.param.split()[0]
    assert compression.install() == compression.RUNS_WITHOUT_GIL
