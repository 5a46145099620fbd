"""Names in a TOML file are found with their lines."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.settings import toml_lines
from gossipkv.settings.toml_lines import line_of

TEXT = """\
# source = "not here"
source = "/srv"
"quoted" = 1
databases.inline = { format = "tsv", key = "k" }

[databases.geo]
format = "tsv"
storage_options.key = "x"

[databases."geo-2".storage_options]
secret = "s"
client_kwargs.region_name = "east"
[ databases . spaced ]
  format='json'
[[lists]]
"""


@pytest.mark.parametrize(("path", "line"), [
    (("source",), 2), (("quoted",), 3), (("databases", "inline"), 4), (("databases", "inline", "format"), 4),
    (("databases",), 4), (("databases", "geo"), 6), (("databases", "geo", "format"), 7),
    (("databases", "geo", "storage_options"), 8), (("databases", "geo", "storage_options", "key"), 8),
    (("databases", "geo", "nothing"), 6), (("databases", "geo-2"), 10),
    (("databases", "geo-2", "storage_options", "secret"), 11),
    (("databases", "geo-2", "storage_options", "client_kwargs", "region_name"), 12),
    (("databases", "spaced", "format"), 14), (("lists",), 15), (("none",), None),
])  # fmt: skip
def test_lines(path, line):
    """Headers, keys, dotted and quoted names are found; inside an inline table its line counts."""
    assert line_of(TEXT, *path) == line


def test_a_text_is_read_once_for_all_of_its_names(monkeypatch):
    """The cost is linear in the number of names."""
    read = []
    monkeypatch.setattr(toml_lines.tomllib, "loads", lambda text, loads=tomllib.loads: read.append(text) or loads(text))
    text = "".join(f"[databases.d{number}]\nformat = 1\n" for number in range(50))
    for number in range(50):
        assert line_of(text, "databases", f"d{number}", "format") == 2 * number + 2
    assert len(read) == 100


@given(st.text(max_size=200), st.text(max_size=5))
def test_no_text_surprises(text, name):
    """Any text, valid or not, yields a line or None."""
    found = line_of(text, name)
    assert found is None or 1 <= found <= len(text.splitlines())


@given(st.dictionaries(st.text("abc_-", min_size=1, max_size=3), st.integers(0, 9), max_size=5))
def test_every_key_of_a_file_is_found(table):
    text = "".join(f"{name} = {value}\n" for name, value in table.items())
    assert tomllib.loads(text) == table
    for number, name in enumerate(table, start=1):
        assert line_of(text, name) == number
