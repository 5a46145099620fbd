"""Endless directories."""

from __future__ import annotations

import itertools
import os

import pytest

from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.environment.seam import MAX_ENTRIES
from gossipkv.errors import SourceError
from tests.unit.dataset.source.test_listing import FILES


def test_a_directory_without_end_is_refused_soon(monkeypatch):
    """A bounded number of entries is read and held."""
    looked = []

    class Endless:
        """An entry, and the iterator over endless copies of it."""

        name = "part"

        def __enter__(self):
            return self

        def __exit__(self, *_):
            """Nothing to close."""

        def __iter__(self):
            return itertools.repeat(self)

        def stat(self, follow_symlinks):
            looked.append(follow_symlinks)
            return os.stat(__file__)

    monkeypatch.setattr(os, "scandir", lambda path: Endless())
    source = SourceRoot("/root", FILES)
    for look in (source.databases, lambda: source.versions("db"), lambda: source.version("db", "v")):
        looked.clear()
        with pytest.raises(
            SourceError,
            match="the directory cannot be read: it has more than 65,536 entries; write fewer, larger files",
        ):
            look()
        assert len(looked) == MAX_ENTRIES
