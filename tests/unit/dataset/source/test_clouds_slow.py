"""Sources in Google's and Azure's object stores, by gcsfs and adlfs and a server of their protocols."""

from types import SimpleNamespace

import gcsfs.retry
import pytest

from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.source import remote, small_objects
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import SourceChanged, SourceError
from tests.unit.dataset.cloud_server import SECRET, CloudServer
from tests.unit.dataset.sources import MEMORY_BYTES, lines
from tests.unit.dataset.world import active, get


@pytest.fixture(params=["gs", "az"])
def cloud(request):
    server = CloudServer(request.param)
    yield server
    server.close()


@pytest.fixture
def source(cloud):
    return SourceRoot.open(cloud.root, RealFiles(), cloud.options, require_success_file=True)


def test_a_listing_is_one_request_a_page(cloud, source, monkeypatch):
    """Names that begin in the same way are no part of it, and it ends where there are too many."""
    for key in ("v1/part-0", "v1/_SUCCESS", "v1/.part-0.crc", "v1/_temporary/0/x", "v10/part-0"):
        cloud.put(f"root/db/{key}", b"x")
    cloud.put("root/README", b"x")
    cloud.put("root/db/v2/", b"")
    assert source.databases().names == ("db",)
    assert source.versions("db").names == ("v1", "v10", "v2")
    cloud.counts.clear()
    version = source.version("db", "v1")
    assert [(file.name, file.size_bytes, bool(file.tag)) for file in version.files] == [("part-0", 1, True)]
    assert version.files[0].modified_ns == 1_700_000_000_000_000_000
    assert version.waiting_for is None
    assert source.version("db", "v2").waiting_for is not None
    assert cloud.counts == {"list": 2}
    for number in range(20):
        cloud.put(f"root/db/v3/part-{number:02}", b"")
    cloud.page = 7
    cloud.counts.clear()
    assert len(source.version("db", "v3").files) == 20
    assert cloud.counts == {"list": 3}
    monkeypatch.setattr(remote, "MAX_ENTRIES", 3)
    with pytest.raises(SourceError, match="db/v3: the directory cannot be read: it has more than"):
        source.version("db", "v3")
    assert cloud.counts == {"list": 4}
    with pytest.raises(SourceError, match=r"root/none: the directory cannot be read: [Nn]o such file or directory"):
        source.versions("none")


def test_a_small_object_takes_one_request(cloud, source, tmp_path):
    for number in range(40):
        cloud.put(f"root/db/v1/part-{number:02}", lines(**{f"k{number}": number}))
    cloud.put("root/db/v1/part-99", b"")
    version = source.version("db", "v1")
    cloud.counts.clear()
    job = BuildJob.of(version, str(tmp_path), partitions=3, remote=source.remote)
    assert perform(job, RealFiles(), BuildResources(MEMORY_BYTES)).records == 40
    assert cloud.counts == {"read": 40, "state": 1}


def test_a_larger_object_is_read_in_pieces(cloud, source, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "BLOCK_BYTES", 1 << 20)
    data = b"".join(b"%07d\t%s\n" % (number, b"v" * 90) for number in range(30_000))
    assert len(data) > small_objects.SMALL_BYTES
    cloud.put("root/db/v1/part-0", data)
    job = BuildJob.of(source.version("db", "v1"), str(tmp_path), remote=source.remote)
    assert perform(job, RealFiles(), BuildResources(MEMORY_BYTES)).records == 30_000


@pytest.mark.parametrize("size", [10, small_objects.SMALL_BYTES + 1])
def test_an_object_that_changed_is_an_error(cloud, source, size):
    """Its tag tells, even if size and time are the same."""
    cloud.put("root/db/v1/part-0", b"x" * size)
    file = source.version("db", "v1").files[0]
    with SourceReader(source._files, file) as reader:
        assert reader.read_at(1, 2) == b"xx"
    for data in (b"y" * size, b"y" * (size + 1)):
        cloud.put("root/db/v1/part-0", data)
        source._files.announce([file])
        with pytest.raises(SourceChanged), SourceReader(source._files, file):
            pass
    cloud.objects.clear()
    source._files.announce([file])
    with pytest.raises(SourceChanged, match="it does not exist"), SourceReader(source._files, file):
        pass


def refusal(cloud, status, code, message, detail=""):
    if "endpoint_url" in cloud.options:
        return status, "application/json", f'{{"error": {{"code": {status}, "message": "{message}"}}}}'
    detail = f"<AuthenticationErrorDetail>{detail}</AuthenticationErrorDetail>" if detail else ""
    return status, "application/xml", f"<Error><Code>{code}</Code><Message>{message}</Message>{detail}</Error>"


@pytest.fixture
def pauses(monkeypatch):
    """Return the pauses, which take no time."""
    made = []
    monkeypatch.setattr(remote, "time", SimpleNamespace(sleep=made.append))

    async def sleep(seconds):
        made.append(seconds)

    monkeypatch.setattr(gcsfs.retry, "asyncio", SimpleNamespace(sleep=sleep))
    return made


def test_a_busy_store_is_asked_again(cloud, source, pauses):
    cloud.put("root/db/v1/part-0", b"a\t1\n")
    version = source.version("db", "v1")
    for code in (429, 503):
        cloud.refusals = [refusal(cloud, code, "ServerBusy", "The server is busy.")] * 3
        assert source.versions("db").names == ("v1",)
        cloud.refusals = [refusal(cloud, code, "ServerBusy", "The server is busy.")] * 3
        source._files.announce(version.files)
        with SourceReader(source._files, version.files[0]) as reader:
            assert reader.read_at(0, 1) == b"a"
    assert len(pauses) == 12
    assert pauses[:3] == sorted(pauses[:3])
    cloud.refusals = [refusal(cloud, 503, "ServerBusy", "The server is busy.")] * 99
    with pytest.raises(SourceError, match=r"cannot be read: .*busy"):
        source.versions("db")


async def test_a_node_serves_a_cloud_until_its_credentials_expire(cloud, world, pauses):
    """The child asks the store itself; `status` names the reason."""
    cloud.put("root/db/v1/part-0", lines(a=1, b=2))
    cloud.put("root/db/v1/_SUCCESS", b"")
    settings = {"source": cloud.root, "storage_options": cloud.options, "build_memory": 512 << 20}
    async with world.node(**settings) as library:
        await active(library, "v1")
        assert get(library, b"a") == b"1"
        expired = "Signature not valid in the specified time frame: Start [x] - Expiry [y] - Current [z]"
        words = {
            403: "Server failed to authenticate the request. " + "Check the header. " * 30,
            401: "Invalid Credentials",
        }
        status = 401 if "endpoint_url" in cloud.options else 403
        cloud.refusals = [refusal(cloud, status, "AuthenticationFailed", words[status], expired)] * 99
        await library.rescan()
        assert "the credentials of the store have expired; renew them in `storage_options`" in library.trouble()
        assert SECRET not in library.trouble()
        assert get(library, b"b") == b"2"
