"""Sources in remote stores: an fsspec file system as the file operations of a source.

fsspec's synchronous interface runs in worker threads that may be abandoned; its internals (asyncio, a thread, plain
sockets) are invisible to Trio.  fsspec and a store's package are imported at first use: most nodes need neither.

* Paths are the root's URL without users, passwords and queries, with names appended: these may appear in messages.
* fsspec's cache of directories is off, and cleared before every look: a new version must be seen.
* A store's tag of an object (an ETag, a checksum, a generation) helps to detect changes.  Times are then compared by
  the second, since a list and a look at one object differ below that.
* Small objects are read ahead, whole (`small_objects`), once the files to read were announced.
* A store that is busy is asked again after pauses that double.
* Errors of a store's package become an `OSError` in words, without the secrets of URL or options.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import itertools
import re
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar, final

from gossipkv.dataset.source.object_stores import first_entries, open_url, read_whole
from gossipkv.dataset.source.small_objects import KEPT_BYTES, SmallObject, SmallObjects
from gossipkv.environment.seam import MAX_ENTRIES, READ, FileEntry, too_many_entries
from gossipkv.settings.masking import Option, mask_url, scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gossipkv.dataset.source.files import SourceFile, SourceFiles
    from gossipkv.dataset.source.object_stores import FileSystem, FsspecFile, Info
    from gossipkv.environment.seam import Files, Path

# The size of one request while a file is read from end to end: some ten a second at 100 Mbit/s.
BLOCK_BYTES: Final = 4 << 20
# The memory that remote reading takes in a build: the block, the previous one, data still in the network, and small
# objects.
REMOTE_BYTES: Final = 4 * BLOCK_BYTES + KEPT_BYTES

# Pauses before a busy store is asked again.
PAUSES_S: Final = (0.2, 0.4, 0.8, 1.6, 3.2)
_BUSY: Final = re.compile(
    r"SlowDown|slow down|reduce your request rate|throttl|too many requests|\b503\b", re.IGNORECASE
)
_BUSY_CODES: Final = {errno.EBUSY, 408, 429, 500, 502, 503, 504}
# In Amazon's words, Google's ("Invalid Credentials"), and Azure's: a signature has times, a client a secret.
_EXPIRED: Final = re.compile(
    r"ExpiredToken|TokenRefreshRequired|(token|secret keys).{0,60}expired|expired.{0,20}token|invalid_grant"
    r"|Invalid Credentials|not valid in the specified time frame|Signed expiry time",
    re.IGNORECASE,
)

# A message shows this many characters of a store's own words.
MAX_MESSAGE_CHARACTERS: Final = 300

# Fields in which stores report a sign of the content, and the time of the last change; the first one present counts.
_TAGS: Final = ("generation", "ETag", "etag", "checksum", "md5Hash", "content_md5", "version_id")
_TIMES: Final = ("timeCreated", "mtime", "LastModified", "last_modified", "updated", "modified", "created")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# Extras of this package; other packages are named directly.
_EXTRAS: Final = {
    "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure"
}  # fmt: skip

Found = TypeVar("Found")


@final
@dataclass(frozen=True, slots=True)
class RemoteRoot:
    """A source's URL and the options of its store; both may hold secrets, so neither is ever shown."""

    url: str = field(repr=False)
    options: Mapping[str, Option] = field(repr=False)

    @property
    def name(self) -> str:
        """Return the URL in the form that may be shown."""
        return mask_url(self.url).rstrip("/")

    @property
    def protocol(self) -> str:
        """Return the protocol, such as `s3`; of a chain the first."""
        return self.url.partition("://")[0].partition("::")[0]


def files_of(remote: RemoteRoot | None, files: Files) -> SourceFiles:
    """Return the file operations of a source: this machine's files, or a store's."""
    return files if remote is None else RemoteFiles(remote)


def announced(origin: SourceFiles, files: Iterable[SourceFile]) -> SourceFiles:
    """Return the origin once it knows which files will be read."""
    if isinstance(origin, RemoteFiles):
        origin.announce(files)
    return origin


@final
class RemoteFiles:
    """The files below a remote root; any thread may use it.  Every method raises `OSError` if the store refuses."""

    def __init__(self, root: RemoteRoot) -> None:
        self._root = root
        self._opening = threading.Lock()
        self._opened: tuple[FileSystem, str] | None = None
        self._reading: dict[int, FsspecFile | SmallObject] = {}
        self._small: SmallObjects | None = None
        self._descriptors = itertools.count(3)

    def announce(self, files: Iterable[SourceFile]) -> None:
        """Say which files will be read, in their order; the small ones are read ahead from then on."""
        self._small = SmallObjects(files, self._read_whole)

    def connect(self) -> None:
        """Open the store as the first use would, and take the memory that this needs."""
        with self._refusals(self._root.name):
            self._file_system()

    def list_directory(self, path: Path) -> list[FileEntry]:
        """List a directory, asking the store anew; see `Files`."""
        with self._refusals(path):
            system, base = self._file_system()
            system.invalidate_cache()
            inner = self._inner(path, base)
            infos = _patient(lambda: first_entries(system, inner, MAX_ENTRIES) or system.ls(inner, detail=True))
            if len(infos) > MAX_ENTRIES:
                raise too_many_entries(path)
            entries = []
            for info in infos:
                name = _name_of(info)
                if name != inner:
                    is_told = info.get("size") is not None or info.get("type") == "directory"
                    entries.append(_entry(name, info if is_told else system.info(name)))
                # An entry without size stands for the directory itself.
                elif info.get("type") == "file" and info.get("size"):
                    raise NotADirectoryError(errno.ENOTDIR, "the path is a file, not a directory")
        return sorted(entries, key=lambda entry: entry.name.encode("utf-8", "surrogatepass"))

    def stat(self, path: Path) -> FileEntry:
        """Return one entry, asking the store anew unless it was announced as small; see `Files`."""
        if self._small is not None and str(path) in self._small:
            return self._small.get(str(path)).entry
        with self._refusals(path):
            system, base = self._file_system()
            system.invalidate_cache()
            inner = self._inner(path, base)
            return _entry(inner, _patient(lambda: system.info(inner)))

    def _read_whole(self, file: SourceFile) -> SmallObject:
        with self._refusals(file.path):
            system, base = self._file_system()
            inner = self._inner(file.path, base)
            found = _patient(partial(read_whole, system, inner, file))
            if found is None:
                size_bytes = file.size_bytes
                data = _patient(partial(system.cat_file, inner, start=0, end=size_bytes)) if size_bytes else b""
                found = _patient(partial(system.info, inner)), data
            return SmallObject(_entry(inner, found[0]), found[1])

    def resolve(self, path: Path) -> str:
        """Return the path itself, since stores have no links."""
        return str(path)

    def open(self, path: Path, flags: int = READ) -> int:
        """Open an object for reading and return its number; see `Files`."""
        del flags
        reading: FsspecFile | SmallObject
        if self._small is not None and str(path) in self._small:
            reading = self._small.get(str(path))
        else:
            with self._refusals(path):
                system, base = self._file_system()
                inner = self._inner(path, base)
                reading = _patient(lambda: system.open(inner, "rb", block_size=BLOCK_BYTES))
        descriptor = next(self._descriptors)
        self._reading[descriptor] = reading
        return descriptor

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes:
        """Read bytes of an open object; see `Files`."""
        reading = self._reading[descriptor]
        if isinstance(reading, SmallObject):
            return reading.data[offset : offset + size_bytes]
        with self._refusals(self._root.name):
            reading.seek(offset)
            parts: list[bytes] = []
            while size_bytes > 0:
                part = _patient(partial(reading.read, size_bytes))
                if not part:
                    break
                parts.append(part)
                size_bytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self, descriptor: int) -> None:
        """Close an open object; see `Files`."""
        reading = self._reading.pop(descriptor)
        if not isinstance(reading, SmallObject):
            with self._refusals(self._root.name):
                reading.close()

    def _file_system(self) -> tuple[FileSystem, str]:
        with self._opening:
            if self._opened is None:
                self._opened = _open(self._root)
            return self._opened

    def _inner(self, path: Path, base: str) -> str:
        """Convert one of our paths into one of the store's."""
        return base + str(path).removeprefix(self._root.name)

    @contextlib.contextmanager
    def _refusals(self, path: Path) -> Iterator[None]:
        """Convert all errors of a store's package into one kind; nothing is chained, since it may reveal secrets."""
        try:
            yield
        except FileNotFoundError as error:
            raise self._refusal(errno.ENOENT, error, path) from None
        except OSError as error:
            raise self._refusal(error.errno or errno.EIO, error, path) from None
        except Exception as error:  # noqa: BLE001  # Stores' packages raise unrelated classes.
            self._opened = None  # A session may have ended; the next look begins another.
            is_missing = getattr(error, "status_code", None) == HTTPStatus.NOT_FOUND
            raise self._refusal(errno.ENOENT if is_missing else errno.EIO, error, path) from None

    def _refusal(self, number: int, error: Exception, path: Path) -> OSError:
        message = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        if number == errno.ENOENT and " " not in message:  # Many stores report no more than the path.
            message = "no such file or directory"
        line = " ".join(message.split())
        is_expired = _EXPIRED.search(line)
        line = line[:MAX_MESSAGE_CHARACTERS]
        if is_expired:
            line = (
                f"the credentials of the store have expired; renew them in `storage_options` or in their file ({line})"
            )
        return OSError(number, scrub(line, self._root.url, self._root.options), str(path))


def _patient(ask: Callable[[], Found]) -> Found:
    """Ask a store, and again after a pause while it is busy."""
    for pause_s in PAUSES_S:
        try:
            return ask()
        except Exception as error:
            signs = {getattr(error, name, None) for name in ("errno", "code", "status_code")}
            if not (signs & _BUSY_CODES or _BUSY.search(str(error))):
                raise
        time.sleep(pause_s)
    return ask()


def _open(root: RemoteRoot) -> tuple[FileSystem, str]:
    registry = importlib.import_module("fsspec")
    try:
        registry.get_filesystem_class(root.protocol)
    except ImportError as error:
        missing = getattr(error.__cause__, "name", None) or root.protocol
        extra = _EXTRAS.get(root.protocol)
        package = missing.partition(".")[0] if extra is None else f"gossipkv[{extra}]"
        raise OSError(
            errno.EPROTONOSUPPORT,
            f"{root.protocol}:// needs a package that is not installed; run `pip install '{package}'`",
        ) from None
    except ValueError:
        near = difflib.get_close_matches(root.protocol, registry.available_protocols(), n=1, cutoff=0)[0]
        raise OSError(
            errno.EPROTONOSUPPORT, f"fsspec does not support {root.protocol}://; the most similar protocol is {near}://"
        ) from None
    options = {**root.options, "use_listings_cache": False, "skip_instance_cache": True}
    system, base = open_url(root.url, options)
    return system, base.rstrip("/")


def _name_of(info: Info) -> str:
    return str(info["name"]).rstrip("/")


def _entry(path: str, info: Info) -> FileEntry:
    kind = {"file": "file", "directory": "directory"}.get(str(info.get("type")), "other")
    size = info.get("size")
    if kind == "file" and not isinstance(size, int):
        raise OSError(errno.EIO, "the store does not report the size of the file")
    tag = next((str(info[key]).strip('"') for key in _TAGS if info.get(key)), "")
    modified_ns = next((_time_ns(info[key]) for key in _TIMES if info.get(key)), 0)
    if tag:
        modified_ns -= modified_ns % 1_000_000_000
    size_bytes = size if isinstance(size, int) else 0
    return FileEntry(path.rstrip("/").rpartition("/")[2], kind, size_bytes, modified_ns, tag)


def _time_ns(value: object) -> int:
    """Return a store's time in nanoseconds; 0 if it cannot be read."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return 0
    if isinstance(value, datetime):
        whole = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (whole - _EPOCH) // timedelta(microseconds=1) * 1_000
    # A number of seconds is rounded to microseconds like a `datetime`, since some stores report either.
    return round(value * 1_000_000) * 1_000 if isinstance(value, int | float) else 0
