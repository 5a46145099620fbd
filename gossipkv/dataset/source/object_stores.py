"""Object stores in the fewest requests: a page of a directory by one, and a small object with its state by one.

fsspec's own calls take more.  `ls` holds all of a million entries, at 2 KiB each, before their number could be refused;
Azure's lists every sibling whose name begins in the same way as well, and `info` asks about an object and a directory.
So these classes call the clients that the packages' file systems have.  All of it runs in fsspec's loop.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from gossipkv.dataset.source.files import SourceFile
    from gossipkv.settings.masking import Option

Info = Mapping[str, object]
Found = TypeVar("Found")


class FsspecFile(Protocol):
    """An open file of fsspec."""

    def seek(self, offset: int) -> int: ...

    def read(self, size: int) -> bytes: ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """A file system of fsspec."""

    def ls(self, path: str, *, detail: bool) -> list[Info]: ...

    def cat_file(self, path: str, *, start: int, end: int) -> bytes: ...

    def info(self, path: str) -> Info: ...

    def open(self, path: str, mode: str, *, block_size: int) -> FsspecFile: ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def makedirs(self, path: str, *, exist_ok: bool) -> None: ...

    def put_file(self, lpath: str, rpath: str) -> None: ...

    def mv(self, path1: str, path2: str) -> None: ...

    def rm_file(self, path: str) -> None: ...

    def rm(self, path: str, *, recursive: bool) -> None: ...

    def get_file(self, rpath: str, lpath: str) -> None: ...

    def invalidate_cache(self, path: str | None = None) -> None: ...


class _ObjectStore(Protocol):
    def entries(self, bucket: str, prefix: str) -> AsyncGenerator[Info, None]:
        """Yield the objects and directories whose names begin so, up to the next slash."""
        ...

    async def read(self, bucket: str, key: str, file: SourceFile) -> tuple[Info, bytes]:
        """Return the state of an object, and as many of its bytes as were listed."""
        ...


def open_url(url: str, options: Mapping[str, Option]) -> tuple[FileSystem, str]:
    """Return the file system for a URL, and the path in it.

    gcsfs's usual class first asks by gRPC for the kind of each bucket, for a minute where nothing answers (a proxy, an
    emulator); its first class only speaks HTTP.
    """
    if url.partition("://")[0] in {"gs", "gcs"}:
        kind = importlib.import_module("gcsfs.core").GCSFileSystem
        return kind(**{**kind._get_kwargs_from_urls(url), **options}), kind._strip_protocol(url)  # noqa: SLF001  # This is fsspec's protocol.
    system, path = importlib.import_module("fsspec.core").url_to_fs(url, **options)
    return system, path


def first_entries(system: FileSystem, path: str, most: int) -> list[Info]:
    """Return the entries of a directory, at most `most` and one; none if the store is another, or has none."""
    found = _object_store(system, path)
    if found is None:
        return []
    store, bucket, key = found

    async def take() -> list[Info]:
        infos = []
        async with contextlib.aclosing(store.entries(bucket, f"{key}/" if key else "")) as entries:
            async for info in entries:
                infos.append(info)
                if len(infos) > most:
                    break
        return infos

    return _run(system, take)


def read_whole(system: FileSystem, path: str, file: SourceFile) -> tuple[Info, bytes] | None:
    """Return the state of a small object and its bytes by one request; None if the store is another."""
    found = _object_store(system, path)
    if found is None:
        return None
    store, bucket, key = found
    return _run(system, lambda: store.read(bucket, key, file))


def _run(system: FileSystem, ask: Callable[[], Awaitable[Found]]) -> Found:
    found: Found = importlib.import_module("fsspec.asyn").sync(getattr(system, "loop", None), ask)
    return found


def _object_store(system: FileSystem, path: str) -> tuple[_ObjectStore, str, str] | None:
    """Return the store, the bucket and the key; None if the store is another, or no bucket is named."""
    store = next((store for attribute, store in _STORES.items() if hasattr(system, attribute)), None)
    if store is None:
        return None
    bucket, key, _ = attrgetter("split_path")(system)(path)
    return (store(system), bucket, key) if bucket else None


@final
class _S3:
    """s3fs."""

    def __init__(self, system: FileSystem) -> None:
        self._iterdir, self._call = attrgetter("_iterdir", "_call_s3")(system)

    async def entries(self, bucket: str, prefix: str) -> AsyncGenerator[Info, None]:
        async for info in self._iterdir(bucket, delimiter="/", prefix=prefix):
            yield info

    async def read(self, bucket: str, key: str, file: SourceFile) -> tuple[Info, bytes]:
        answer = await self._call("get_object", Bucket=bucket, Key=key)
        with contextlib.closing(answer["Body"]) as body:
            # A larger object is another than the listed one.
            data = await body.read() if answer["ContentLength"] <= file.size_bytes else b""
        return {**answer, "size": answer["ContentLength"], "type": "file"}, data


@final
class _Gcs:
    """gcsfs, by the JSON API."""

    def __init__(self, system: FileSystem) -> None:
        self._call, self._url, self._get_object = attrgetter("_call", "url", "_get_object")(system)
        self._process = attrgetter("_process_object")(system)

    async def entries(self, bucket: str, prefix: str) -> AsyncGenerator[Info, None]:
        options = {"delimiter": "/", "prefix": prefix or None, "pageToken": None}
        while True:
            page = await self._call("GET", "b/{}/o", bucket, json_out=True, **options)
            for name in page.get("prefixes", ()):
                yield {"name": f"{bucket}/{name}", "type": "directory", "size": 0}
            for item in page.get("items", ()):
                yield self._process(bucket, item)
            options["pageToken"] = page.get("nextPageToken")
            if options["pageToken"] is None:
                return

    async def read(self, bucket: str, key: str, file: SourceFile) -> tuple[Info, bytes]:
        path = f"{bucket}/{key}"
        if not file.size_bytes:  # No range of bytes is in it.
            return await self._get_object(path), b""
        some = {"Range": f"bytes=0-{file.size_bytes - 1}"}
        headers, data = await self._call("GET", self._url(path), headers=some)
        generation = headers.get("X-Goog-Generation")
        if generation is None:  # Emulators leave it out.
            return await self._get_object(path), data
        size_bytes = int(headers.get("Content-Range", "").rpartition("/")[2] or len(data))
        # A generation was written once, at the time that was listed with it.
        return {"size": size_bytes, "type": "file", "generation": generation, "mtime": file.modified_ns / 1e9}, data


@final
class _Azure:
    """adlfs, by azure-storage-blob, which would repeat a request that was refused 15 s later."""

    def __init__(self, system: FileSystem) -> None:
        self._client, self._details = attrgetter("service_client", "_details")(system)

    async def entries(self, bucket: str, prefix: str) -> AsyncGenerator[Info, None]:
        async with self._client.get_container_client(bucket) as container:
            async for blob in container.walk_blobs(
                name_starts_with=prefix or None, include=["metadata"], retry_status=0
            ):
                yield (await self._details([blob]))[0]

    async def read(self, bucket: str, key: str, file: SourceFile) -> tuple[Info, bytes]:
        async with self._client.get_blob_client(bucket, key) as blob:
            if not file.size_bytes:
                return (await self._details([await blob.get_blob_properties(retry_status=0)]))[0], b""
            stream = await blob.download_blob(offset=0, length=file.size_bytes, retry_status=0)
            data = await stream.readall()
        state = stream.properties
        size_bytes = int((state.content_range or "").rpartition("/")[2] or state.size)
        return {"size": size_bytes, "type": "file", "etag": state.etag, "last_modified": state.last_modified}, data


# By an attribute that only its file system has.
_STORES: Final[dict[str, Callable[[FileSystem], _ObjectStore]]] = {
    "_call_s3": _S3, "_process_object": _Gcs, "service_client": _Azure,
}  # fmt: skip
