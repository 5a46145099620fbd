"""Tables in a settings file configure single databases."""

from __future__ import annotations

import dataclasses

import pytest

from gossipkv.errors import ConfigError
from gossipkv.settings.config import load
from gossipkv.settings.databases import DATABASE_SETTINGS, DatabaseSettings, MinimumSettings, is_name, nearest

SECRET = "correct-horse"


@pytest.fixture
def settings(tmp_path):
    """`settings(text)` returns the settings of a file with this text."""

    def settings(text):
        file = tmp_path / "gossipkv.toml"
        file.write_text(text)
        return load(file)

    return settings


def test_everything_can_be_said(settings):
    """Full, dotted and inline tables work; missing settings stay open."""
    found = settings("""
source = "s3://bucket/root"
[storage_options]
key = "AKID"
[databases.geo]
format = "json"
key = "id"
value = "name"
hold = "2024-01"
presharded = "declared"
content_type = "text/plain; charset=utf-8"
min_records = 7
min_ratio = 0.5
allow_empty = true
[databases.geo.storage_options]
anon = false
client_kwargs = { region_name = "east", retries = 3, factor = 1.5 }
[databases.plain]
[databases.users]
format = "iceberg"
table = "web.users"
catalog = { type = "rest", uri = "https://catalog" }
""")
    assert found.storage_options == {"key": "AKID"}
    assert dict(found.databases) == {
        "geo": DatabaseSettings(
            format="json", key="id", value="name", hold="2024-01", presharded="declared",
            content_type="text/plain; charset=utf-8",
            storage_options={"anon": False, "client_kwargs": {"region_name": "east", "retries": 3, "factor": 1.5}},
            minimum={"min_records": 7, "min_ratio": 500, "allow_empty": True},
        ),
        "plain": DatabaseSettings(),
        "users": DatabaseSettings(
            format="iceberg", table="web.users", catalog={"type": "rest", "uri": "https://catalog"}
        ),
    }  # fmt: skip
    assert found.origin("databases.geo.format").endswith("gossipkv.toml:6")
    assert found.origin("databases.geo.storage_options").endswith("gossipkv.toml:15")


def test_without_tables_there_are_none(settings):
    assert dict(settings("").databases) == {}
    assert dict(settings("").storage_options) == {}
    assert dict(load().databases) == {}


@pytest.mark.parametrize(("text", "line", "said"), [
    ("[databases.geo]\nformt = 'tsv'", 2, "databases.geo: unknown setting formt; the nearest known setting is format"),
    ("[databases.geo]\nhold = 'v1'\nvalu = 'x'", 3, "unknown setting valu; the nearest known setting is value"),
    ("[databases.geo]\nrefresh_period = '1m'", 2, "unknown setting refresh_period; the nearest known setting is"),
    ("[databases.geo]\nformat = 'tvs'", 2, "the nearest allowed value is tsv; allowed: sequence or tsv or"),
    ("[databases.geo]\nformat = 1", 2, "databases.geo.format: 1: expected a string; allowed: sequence or"),
    ("[databases.geo]\nformat = 'dleta'", 2, "the nearest allowed value is delta"),
    ("[databases.geo]\ntable = '/t'", 2, "databases.geo.table: needs format = 'delta' or 'iceberg'"),
    ("[databases.geo]\nformat = 'delta'\ntable = 't'\ncatalog = { type = 'sql' }", 4, "needs format = 'iceberg'"),
    ("[databases.geo]\nformat = 'iceberg'\ncatalog = { type = 'sql' }", 3, "name in the catalog: set table"),
    ("[databases.geo]\npresharded = 'prob'", 2, "the nearest allowed value is probe; allowed: probe or declared"),
    ("[databases.geo]\nhold = 'v 1'", 2, "not the name of a version"),
    ("[databases.geo]\nhold = ''", 2, "not the name of a version"),
    ("[databases.geo]\ncontent_type = 'plain'", 2, "geo.content_type: 'plain': not a media type; allowed:"),
    ("[databases.geo]\nmin_ratio = 1.5", 2, "geo.min_ratio: 1.5: expected a number above 0 and at most 1, with"),
    ("[databases.geo]\nmin_records = true", 2, "geo.min_records: True: expected a whole number"),
    ("[databases.geo]\nkey = ''", 2, "expected 1 to 1,000 characters"),
    ("\n[databases.'ge o']\nkey = 'k'", 2, "databases.ge o: not the name of a database"),
    ("[databases]\ngeo = 1", 2, "expected a table [databases.geo]"),
    ("databases = 1", 1, "expected a table [databases.NAME]"),
    ("[[databases]]", 1, "expected a table [databases.NAME]"),
    ("storage_options = 'x'", 1, "expected a table with the options of the object store"),
    (f"[storage_options]\nkey = ['{SECRET}']", 2, "storage_options.key: expected a string, a number"),
    (f"[databases.g.storage_options]\na = 1\nb.c = ['{SECRET}']", 3, "databases.g.storage_options.b.c: expected"),
    ("[databases.geo]\nstorage_options = 'x'", 2, "expected a table with the options of the object store"),
    ("[database.geo]\nkey = 'k'", 1, "unknown setting database; the nearest known setting is databases"),
    ("[storage_option]\nkey = 'k'", 1, "unknown setting storage_option; the nearest known setting is storage_options"),
])  # fmt: skip
def test_a_mistake_names_line_and_what_is_allowed(settings, tmp_path, text, line, said):
    """The error has no option's value, which may be a secret."""
    with pytest.raises(ConfigError) as caught:
        settings(text)
    assert str(caught.value).startswith(f"{tmp_path / 'gossipkv.toml'}:{line}: ")
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("table", ["[storage_options]", "[databases.geo.storage_options]"])
def test_options_without_a_store_are_a_mistake(settings, table):
    """A directory has no options; a later source may."""
    with pytest.raises(ConfigError, match="the source /srv is a directory; only a source by URL has such options"):
        settings(f"source = '/srv'\n{table}\nkey = 'k'")
    settings(f"{table}\nkey = 'k'")
    at_a_store = "[databases.geo]\nformat = 'delta'\ntable = 's3://b/t'\n[databases.geo.storage_options]\nkey = 'k'"
    settings(f"source = '/srv'\n{at_a_store}")


def test_the_tables_stand_in_the_file_alone():
    """A variable or a flag of that name is unknown."""
    for wrong in ({"environ": {"GOSSIPKV_DATABASES": "x"}}, {"flags": {"databases": "x"}}):
        with pytest.raises(ConfigError, match="unknown setting"):
            load(**wrong)


def test_secrets_are_not_in_what_is_printed(settings):
    """Secrets are hidden in whole configurations and in a database's settings."""
    found = settings(
        f"source = 'ftp://joe:{SECRET}@host/x'\n[storage_options]\nsecret = '{SECRET}'\n"
        f"[databases.g.storage_options]\nsecret = '{SECRET}'\n"
    )
    assert SECRET not in repr(found)
    assert SECRET not in str(found.origins)


def test_the_list_is_the_dataclass():
    fields = {each.name for kind in (DatabaseSettings, MinimumSettings) for each in dataclasses.fields(kind)}
    assert sorted(setting.name for setting in DATABASE_SETTINGS) == sorted(fields - {"minimum"})


def test_the_nearest_of_names():
    """A nearest name always exists."""
    assert nearest("hodl", ["hold", "key"]) == "hold"
    assert nearest("", ["key"]) == "key"
    assert is_name("a-B_9")
