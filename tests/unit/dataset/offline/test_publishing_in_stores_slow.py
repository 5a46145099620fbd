"""Versions published into object stores by the command, with servers of them and a node that records the questions."""

from __future__ import annotations

import json
import logging

import boto3
import pytest
from moto.server import ThreadedMotoServer

from gossipkv import cli
from gossipkv.dataset.offline.destinations import RemoteDestination
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import StorageError
from tests.unit.cli.asked_node import AskedNode
from tests.unit.dataset.cloud_server import CloudServer

PUT = RemoteDestination.put


def refuse_success(self, name, data):
    """Fail where a kill would hurt: everything is there but the last file."""
    if name == "_SUCCESS":
        raise StorageError("the network went away")
    PUT(self, name, data)


@pytest.fixture(params=["s3", "gs", "az"])
def store(request):
    """Yield the root of a source in a store, and the fsspec options for its server."""
    if request.param != "s3":
        cloud = CloudServer(request.param)
        yield cloud.root, cloud.options
        cloud.close()
        return
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    options = {"key": "AKIDEXAMPLE", "secret": "correct-horse", "endpoint_url": f"http://{host}:{port}"}
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y"}
    boto3.client("s3", endpoint_url=options["endpoint_url"], region_name="us-east-1", **keys).create_bucket(
        Bucket="publishing"
    )
    yield "s3://publishing/root", options
    moto.stop()


def test_a_version_is_uploaded_and_declared_last(store, tmp_path, monkeypatch, capsys):
    """An upload that failed goes on under the same name."""
    root, options = store
    config = tmp_path / "gossipkv.toml"
    config.write_text(
        f'source = "{root}"\n[storage_options]\n' + "".join(f'{key} = "{value}"\n' for key, value in options.items())
    )
    out = tmp_path / "out"
    out.mkdir()
    for number in range(3):
        (out / f"part-{number}").write_text(f"key {number}\tvalue\n")
    source = SourceRoot.open(root, RealFiles(), options, require_success_file=True)

    def seen(*_):
        return {"geo": [*source.versions("geo").names]}

    methods = {
        "info": lambda: {"source": {"root": root, "require_success_file": True}},
        "status": lambda *_: {"geo": {"active": None, "versions": {}}},
        "refresh": seen,
        "members": list,
    }
    with AskedNode(**methods) as node:
        monkeypatch.setenv("GOSSIPKV_NODE", node.address)
        command = ["publish", "geo", str(out), "--config", str(config), "--json"]
        with monkeypatch.context() as broken:
            broken.setattr(RemoteDestination, "put", refuse_success)
            assert cli.run(command) == 3
        (name,) = source.versions("geo").names
        assert source.version("geo", name).waiting_for == "a file _SUCCESS"
        capsys.readouterr()
        assert cli.run(command) == 0
        assert json.loads(capsys.readouterr().out)["version"] == name
        found = source.version("geo", name)
        assert (found.waiting_for, len(found.files)) == (None, 3)
        assert cli.run(command) == 0
        assert seen() == {"geo": [name]}
