"""Docstrings begin with a noun or a verb, and the check sees those that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ci.tidy import docstrings
from tests.ci.tidy.planted import plant
from tests.ci.tidy.source import ROOT, sources

if TYPE_CHECKING:
    from pathlib import Path


def test_every_docstring_begins_whole() -> None:
    """None begins with "Of this start." and the like."""
    assert docstrings.fragments(sources(ROOT, "gossipkv", "src_ext")) == []


def test_docstrings_are_found() -> None:
    """Those of Python and of Cython: the list above is not empty for want of any."""
    for top in ("gossipkv", "src_ext"):
        assert len(list(docstrings.openings(sources(ROOT, top)))) > 300


@pytest.mark.parametrize(
    "text", ["Of this start.", "From now on it is so.", "As `Files`.", "By name.", "To another node."]
)
def test_a_fragment_is_seen(tmp_path: Path, text: str) -> None:
    """In a module, a class, a method and a function, in Python and in Cython."""
    python = (
        f'"""{text}"""\n\nclass A:\n    """{text}\n\n    More.\n    """\n\n    def f(self):\n        """{text}"""\n'
    )
    cython = f'"""{text}"""\n\ncdef class A:\n    """{text}"""\n\n    cdef int f(\n        self\n    ) except -1:\n'
    cython += f'        """{text}"""\n'
    found = docstrings.fragments(plant(tmp_path, {"gossipkv/a.py": python, "src_ext/gossipkv/_a.pyx": cython}))
    assert [line.rpartition(":")[0] for line in found] == [
        "gossipkv/a.py:1", "gossipkv/a.py:4", "gossipkv/a.py:10",
        "src_ext/gossipkv/_a.pyx:1", "src_ext/gossipkv/_a.pyx:4", "src_ext/gossipkv/_a.pyx:9",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "Epoch of this start.",
        "Return what was asked for.",
        "Whether it is so.",
        "At most `limit` records.",
        "`Of` is a name.",
    ],
)
def test_a_whole_opening_passes(tmp_path: Path, text: str) -> None:
    """A noun, a verb, a clause that stands for a noun, an amount; and text that is no docstring."""
    python = f'"""{text}"""\n\nx = """\nOf this start.\n"""\n'
    cython = f'"""{text}\n\nOf more:\n"""\n\nx = """Of this start."""\n'
    assert docstrings.fragments(plant(tmp_path, {"gossipkv/a.py": python, "src_ext/gossipkv/_a.pyx": cython})) == []
