"""The places of backups: those that settings allow, and none that a client makes up."""

import pytest

from gossipkv.backup.places import BackupPlaces
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import BadRequest
from gossipkv.settings.config import load
from gossipkv.settings.stores import Stores

ROOTS = {"backup_roots": "/backups,/mnt/more,gs://plain/backups"}
FILE = """
source = "s3://lake/sets"
storage_options.key = "of the source"
[storage."s3://safe/backups/"]
key = "of backups"
[databases.orders]
format = "delta"
table = "az://tables/orders"
storage_options.key = "of the table"
"""


@pytest.fixture
def settings(tmp_path):
    def read(**flags):
        file = tmp_path / "node.toml"
        file.write_text(FILE)
        return BackupPlaces.of(load(file, {}, flags), "/data")

    return read


@pytest.mark.parametrize(
    "place",
    [
        "backups", "", "memory:b", "data:application/json,{}", "/backups/../data", "file://host/backups", "local:///backups",
        "FILE:///backups", "simplecache::s3://safe/backups", "s3://safe/backups::file:///x", "reference://x", "ftp://h/x",
        "/", "s3://safe/backups?versionId=1", "s3://safe/backups/../..", "s3://safe", "s3://safe/backups2",
        "/backups\0x", "s3://lake/sets/x", "s3://other/b", "az://tables/orders/b", "memory://b", "s3://safe/back*",
    ],
)  # fmt: skip
def test_a_place_that_no_setting_names(settings, place):
    with pytest.raises(BadRequest, match="cannot be a place of backups"):
        settings(**ROOTS).check(place)


@pytest.mark.parametrize(
    ("place", "used"),
    [
        ("/backups/", "/backups"), ("file:///backups/x", "/backups/x"), ("s3://safe/backups/", "s3://safe/backups"),
        ("s3://safe/backups/a", "s3://safe/backups/a"), ("gs://plain/backups", "gs://plain/backups"),
    ],
)  # fmt: skip
def test_a_place_of_the_settings(settings, place, used):
    assert settings(**ROOTS).check(place) == used


def test_options_go_to_their_own_store_alone(settings):
    places = settings(**ROOTS)
    assert places.options("s3://safe/backups/x") == {"key": "of backups"}
    assert places.options("gs://plain/backups/x") == {}
    assert places.options("/backups") == {}


def test_without_users_the_settings_must_name_places(settings):
    with pytest.raises(BadRequest, match=r'add to its settings: backup_roots = \["/backups"\]'):
        settings().check("/backups")
    assert settings(users="/etc/users").check("/anywhere") == "/anywhere"
    with pytest.raises(BadRequest, match=r'add \[storage."s3://other/b"\]'):
        settings(users="/etc/users").check("s3://other/b")


def test_links_lead_nowhere_else(tmp_path):
    for name in ("data", "backups", "other"):
        (tmp_path / name).mkdir()
    data, backups, other = (str(tmp_path / name) for name in ("data", "backups", "other"))
    (tmp_path / "backups" / "in").symlink_to(data)
    (tmp_path / "backups" / "out").symlink_to(other)
    (tmp_path / "more").symlink_to(backups)
    for roots in ((), (str(tmp_path / "more"),)):
        places, files = BackupPlaces(roots, Stores({}), (data,), is_open=not roots), RealFiles()
        places.resolved(f"{backups}/new/x", files)
        for path in (f"{backups}/in/x", data):
            with pytest.raises(BadRequest, match=f"leads into {data}"):
                places.resolved(path, files)
    with pytest.raises(BadRequest, match="leads to no directory of backup_roots"):
        places.resolved(f"{backups}/out/x", files)
