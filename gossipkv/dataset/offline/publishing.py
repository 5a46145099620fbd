"""Publication of a finished version: its files are put below a source root, and it appears whole.

* In a directory, files are copied or linked into `<database>/_publish-<version>-<content>`, at which no node looks; the
  directory is renamed when everything in it is durable.
* Stores behind a URL have no rename of directories that is one step.  Files are uploaded under the version's own name
  and `_SUCCESS` comes last, so nodes must wait for it (`require_success_file`).

Invariant: whatever is interrupted, the same publication again completes it, and adds no second version.  The hidden
name and a receipt in the version, `_PUBLISHED.json`, name the content: a hash of names, sizes and times of its files.
Files that are in place are kept, since each appears whole (`destinations`).  Two publications of different files under
one version never share a directory; the second rename finds the name taken.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.build.adopt import copy_bytes
from gossipkv.dataset.offline.destinations import ATTEMPT, RemoteDestination, destination, refusals
from gossipkv.dataset.source.listing import SUCCESS_FILE
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import BadRequest, Conflict, SourceError
from gossipkv.settings.databases import is_name
from gossipkv.storage.directories import remove_tree
from gossipkv.storage.typed import typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from gossipkv.dataset.offline.destinations import Destination
    from gossipkv.dataset.source.files import SourceFile, SourceFiles
    from gossipkv.dataset.source.listing import SourceVersion
    from gossipkv.environment.seam import Files
    from gossipkv.settings.masking import Option

RECEIPT_FILE: Final = "_PUBLISHED.json"
UPLOADS_AT_ONCE: Final = 16  # A store answers each after some 100 ms, whatever its size.

_HIDDEN: Final = re.compile(r"_publish-(.+)-([0-9a-f]{16})")
_DIGITS: Final = re.compile(r"\d{8}")  # A date without hyphens.
_TIMED: Final = re.compile(r"(.*)-\d{4}-?\d\d-?\d\d-\d{6}")
# A directory of a job that has not ended, or was killed.
_UNFINISHED: Final = "_temporary"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt that is written into a version."""

    content: str  # `content_of` the files.
    records: int
    source_bytes: int

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_bytes(cls, data: bytes) -> Receipt | None:
        """Decode a receipt; None if it is none of ours."""
        try:
            return typed(cls, json.loads(data))
        except ValueError:
            return None


def content_of(version: SourceVersion) -> str:
    """Return what tells these files from others: a hash of their names, sizes and times."""
    return hashlib.sha256(version.fingerprint.encode()).hexdigest()[:16]


def next_version(newest: str | None, now: datetime) -> str:
    """Return a name that sorts after the newest one: the time, behind the newest name where it has to be."""
    time = now.strftime("%Y%m%d-%H%M%S" if newest is not None and _DIGITS.match(newest) else "%Y-%m-%d-%H%M%S")
    if newest is None:
        return time
    timed = _TIMED.fullmatch(newest)
    behind = [f"{timed[1]}-{time}"] if timed is not None else []
    return next(name for name in (time, *behind, f"{newest}-{time}") if name > newest)


def refuse_unfinished(directory: str, options: Mapping[str, Option] | None = None) -> None:
    """Raise SourceError if a job still writes this directory, or was killed."""
    names = destination(directory, options).names()
    begun = [name for name in names if name == _UNFINISHED or name.startswith(ATTEMPT)]
    if begun and SUCCESS_FILE not in names:
        raise SourceError(
            f"{directory}: the version is not finished: it has {begun[0]} and no {SUCCESS_FILE}; finish the job first",
            {"file": directory},
        )


@final
class SourceDatabase:
    """A database below a source root, where versions are published."""

    def __init__(
        self,
        root: str,
        database: str,
        options: Mapping[str, Option] | None = None,
        *,
        files: Files | None = None,
    ) -> None:
        self._directory = f"{root.rstrip('/')}/{database}"
        self._options = options
        self._files: Files = RealFiles() if files is None else files
        self._above = destination(self._directory, options, files=self._files)
        self.is_remote = isinstance(self._above, RemoteDestination)

    def versions(self) -> list[str]:
        """Return the versions, sorted; none if there is no such database yet."""
        return [name for name in self._above.names() if is_name(name) and not name.startswith("_")]

    def receipt(self, version: str) -> Receipt | None:
        """Return the receipt of a version; None if it was put there in another way."""
        place = self._at(version)
        if not place.exists(RECEIPT_FILE):
            return None
        with place.open(RECEIPT_FILE) as file:
            return Receipt.of_bytes(file.read_at(0, file.size_bytes))

    def choose(self, content: str, wanted: str | None, known: Iterable[str], now: datetime) -> str:
        """Return the version under which to publish this content.

        That is `wanted`, or else the version of an interrupted publication, or else a name that sorts after all of the
        source and all `known` ones.  A version that has this content already is returned as it is.

        Raises:
            Conflict: `wanted` has other files.
            BadRequest: `wanted` sorts before a version that is there.
        """
        present = self.versions()
        newest = max([*present, *known], default=None)
        if wanted in present:
            if self._has(wanted, content):
                return wanted
            raise Conflict(
                f"{self._at(wanted).name}: the version exists with other files, or before a job wrote these again, and "
                "cannot change; choose another name",
                {"version": wanted},
            )
        if wanted is not None:
            if newest is not None and wanted < newest:
                raise BadRequest(
                    f"version {wanted} sorts before version {newest}, so nodes would never switch to it; "
                    "choose a later name",
                    {"version": wanted, "newest": newest},
                )
            return wanted
        if newest in present and self._has(newest, content):
            return newest
        hidden = [found for name in self._above.names() if (found := _HIDDEN.fullmatch(name)) and found[2] == content]
        begun = max((found[1] for found in hidden), default=None)
        return begun if begun is not None and begun > (newest or "") else next_version(newest, now)

    def version_at(self, path: str) -> str | None:
        """Return the version whose directory this is, if a job wrote it where versions are."""
        above, _, name = path.rstrip("/").rpartition("/")
        same = above == self._directory or (
            not self.is_remote and self._resolved(above) == self._resolved(self._directory)
        )
        return name if same and name in self.versions() else None

    def put(
        self,
        version: str,
        listed: SourceVersion,
        origin: SourceFiles,
        receipt: Receipt,
        *,
        link: bool = False,
        on_copy: Callable[[int], None] = lambda _: None,
    ) -> bool:
        """Put the listed files there as `version`, durably; False if it is there already.

        Args:
            version: as `choose` returned it.
            listed: the files.
            origin: the file operations that read them.
            receipt: what they are.
            link: link files that are in the same file system instead of copying them.
            on_copy: called with the size of each piece that was copied.

        Raises:
            Conflict: another publication was quicker under this name.
            SourceChanged: a file changed while it was copied.
            StorageError: the source root cannot be written.
        """
        if version in self.versions() and not self.is_remote:
            self._remove_outdone(version)
            if not self._at(version).exists(SUCCESS_FILE):  # A job wrote it where it is.
                self._at(version).put(SUCCESS_FILE, b"")
            return False
        if self._at(version).exists(SUCCESS_FILE):
            return False
        place = self._at(version) if self.is_remote else self._at(f"_publish-{version}-{receipt.content}")
        with place.workspace() as workspace:
            there = set(place.names())
            if RECEIPT_FILE not in there:
                place.put(RECEIPT_FILE, receipt.to_bytes())
            put = partial(self._put_file, place, workspace, origin=origin, link=link, on_copy=on_copy)
            lacking = []
            for file in _all_files(listed):
                if file.name in there:
                    on_copy(file.size_bytes)
                else:
                    lacking.append(file)
            if self.is_remote:
                with ThreadPoolExecutor(UPLOADS_AT_ONCE) as uploads:
                    list(uploads.map(put, lacking))
            else:
                for file in lacking:
                    put(file)
        place.remove_attempts()
        place.put(SUCCESS_FILE, b"")
        if not self.is_remote:
            self._appear(place.name, version)
        return True

    def _at(self, name: str) -> Destination:
        return destination(f"{self._directory}/{name}", self._options, files=self._files)

    def _has(self, version: str, content: str) -> bool:
        receipt = self.receipt(version)
        return receipt is not None and receipt.content == content

    def _resolved(self, path: str) -> str | None:
        with contextlib.suppress(OSError):
            return self._files.resolve(path)
        return None

    def _put_file(
        self,
        place: Destination,
        workspace: Path,
        file: SourceFile,
        *,
        origin: SourceFiles,
        link: bool,
        on_copy: Callable[[int], None],
    ) -> None:
        is_here = "://" not in file.path
        with self._refusals(), SourceReader(origin, file) as reader:
            if is_here and self.is_remote:
                place.publish(Path(file.path), file.name)
                on_copy(file.size_bytes)
                return
            path = workspace / file.name.replace("/", "%")
            if not (is_here and link and self._link(file.path, path)):
                target = self._files.open(path, WRITE_NEW)
                try:
                    copy_bytes(self._files, file, reader, target, on_copy=on_copy)
                    self._files.sync(target)
                finally:
                    self._files.close(target)
        place.publish(path, file.name)
        if self.is_remote:
            with self._refusals():
                self._files.unlink(path)  # Each file of a version would stay on the local disk.

    def _link(self, source: str, target: Path) -> bool:
        """Return False if another file system, or one without links, is in the way."""
        try:
            self._files.link(source, target)
        except OSError as error:
            if error.errno in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP}:
                return False
            raise
        return True

    def _appear(self, hidden: str, version: str) -> None:
        """Give a complete directory its name."""
        with self._refusals():
            try:
                self._files.rename(hidden, f"{self._directory}/{version}")
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                    raise Conflict(
                        f"{self._directory}/{version}: another publication has made this version; "
                        "publish under another name",
                        {"version": version},
                    ) from error
                raise
            self._files.sync_directory(self._directory)
        self._remove_outdone(version)

    def _remove_outdone(self, version: str) -> None:
        """Remove what others left that was to become a version which is there now."""
        for name in () if self.is_remote else self._above.names():
            found = _HIDDEN.fullmatch(name)
            if found is not None and found[1] == version:
                with self._refusals():
                    remove_tree(self._files, Path(self._directory, name))

    def _refusals(self) -> contextlib.AbstractContextManager[None]:
        return refusals(self._directory, "publish")


def _all_files(listed: SourceVersion) -> Iterator[SourceFile]:
    """Yield the data files, each behind its checksums, and the job's declaration."""
    declaration = () if listed.declaration is None else (listed.declaration,)
    for file in (*declaration, *listed.files):
        if file.checksums is not None:
            yield file.checksums
        yield file
