"""The prompt offers the names that users may rely upon, and no more."""

from __future__ import annotations

import gossipkv


def test_the_package_shows_its_interface():
    assert dir(gossipkv) == ["Client", "__doc__", "__version__", "aio", "blocking", "connect", "errors"]
    assert all(getattr(gossipkv, name) for name in dir(gossipkv))


def test_the_blocking_client_shows_its_interface():
    """The names are those of `from gossipkv.blocking import *`."""
    assert dir(gossipkv.blocking) == ["Client", "Dataset", "Table", "__doc__", "connect"]
    assert all(getattr(gossipkv.blocking, name) for name in dir(gossipkv.blocking))
