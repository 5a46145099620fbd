"""Partitions written to S3, with moto as the server."""

import logging

import boto3
import pytest
from moto.server import ThreadedMotoServer

from gossipkv.dataset import finish_version, partition_of, write_partition
from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import SourceError, StorageError

RECORDS = [(b"key %d" % n, b"value %d" % n) for n in range(900)]


@pytest.fixture(scope="module")
def store():
    """Yield a client of moto's server and the fsspec options for it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    url = f"http://{host}:{port}"
    options = {"key": "AKIDEXAMPLE", "secret": "correct-horse", "endpoint_url": url}
    client = boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y"
    )
    yield client, options
    moto.stop()


def test_a_version_is_written_and_listed(store):
    """A partition may be written twice; a finished version does not change."""
    client, options = store
    client.create_bucket(Bucket="versions")
    for partition in (0, 1, 2, 1):
        held = [record for record in RECORDS if partition_of(record[0], 3) == partition]
        write_partition("s3://versions/root/geo/v1", partition, 3, held, storage_options=options)
    with pytest.raises(SourceError, match=r"s3://versions/root/geo/v1: the directory has no part-00003\.gkv"):
        finish_version("s3://versions/root/geo/v1", 4, storage_options=options)
    assert finish_version("s3://versions/root/geo/v1", 3, storage_options=options).records == 900
    with pytest.raises(StorageError, match="the version is finished"):
        write_partition("s3://versions/root/geo/v1", 0, 3, [], storage_options=options)
    source = SourceRoot.open("s3://versions/root", RealFiles(), options, require_success_file=True)
    version = source.version("geo", "v1")
    assert version.waiting_for is None
    assert BuildJob.of(version, "x", remote=source.remote).partitions == 3


def test_a_bucket_that_is_not_there_is_not_made(store):
    """A mistyped name is an error and creates no bucket."""
    client, options = store
    with pytest.raises(StorageError, match=r"s3://mistyped/geo/v1: cannot write a version: .*bucket"):
        write_partition("s3://mistyped/geo/v1", 0, 1, [], storage_options=options)
    assert "mistyped" not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
