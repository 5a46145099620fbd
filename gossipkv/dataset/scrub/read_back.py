"""The program that reads a version back and compares each byte with a checksum, in a process of its own.

The program is `python -m gossipkv.dataset.scrub.read_back`: in the serving process the checksums would delay reads.
This module imports no Trio, so that the program starts quickly.

    standard input   one line, the order: [directory, database, version, bytes a second, descriptor of the leash]
    standard output  lines of JSON: {"damaged": [file, offset, reason, expected, got]} for each damaged file, then
                     {"done": [files, bytes, true if the cache was bypassed]} or {"error": ...}
    the leash        as of a build
"""

from __future__ import annotations

import errno
import json
import sys
import time
from dataclasses import astuple, dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.local.manifest import MANIFEST, PartitionFile
from gossipkv.dataset.local.version import read_version
from gossipkv.environment.real_files import DirectFiles
from gossipkv.errors import Corrupt, StorageError, UnsupportedFormat
from gossipkv.processes import leash
from gossipkv.processes.pace import RateLimit
from gossipkv.processes.program import say_json
from gossipkv.storage.label import CheckedBody, OpenFile, read_label

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.environment.seam import Files

# Bytes read between two pauses: other reads of the disk wait no longer than for this.
PIECE_BYTES: Final = 256 << 10


@final
@dataclass(frozen=True, slots=True)
class Job:
    """The version to read back, and the pace."""

    directory: str
    database: str
    version: str
    bytes_per_second: int


@final
@dataclass(frozen=True, slots=True)
class ReadBackOutcome:
    """A version was read back from beginning to end."""

    files: int
    size_bytes: int
    bypassed_cache: bool  # All bytes came from the disk itself.


def read_back(
    files: Files, job: Job, *, wait: Callable[[int], None], on_damage: Callable[[Corrupt], None]
) -> tuple[int, int]:
    """Return the number of files and bytes read; `on_damage` gets the first damage of each file, and of the manifest.

    `wait` is called with the size of each read before it starts.

    Raises:
        OSError: the system refuses (EACCES, EMFILE); data that the disk cannot read (EIO) is damage.
    """
    directory = PurePath(job.directory)
    try:
        manifest = read_version(files, directory, job.database, job.version)
    except (Corrupt, UnsupportedFormat) as error:
        on_damage(_damage(str(directory / MANIFEST), error))
        return 0, 0
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        on_damage(_unreadable(str(directory / MANIFEST), 0))
        return 0, 0
    for file in manifest.files_here:
        path = directory / file.name
        try:
            _check(files, path, file, wait)
        except (Corrupt, UnsupportedFormat) as error:
            on_damage(_damage(str(path), error))
        except FileNotFoundError:
            on_damage(Corrupt(str(path), 0, "the file is missing"))
    return len(manifest.files_here), manifest.size_bytes


def _check(files: Files, path: PurePath, expected: PartitionFile, wait: Callable[[int], None]) -> None:
    descriptor = files.open(path)
    try:
        source = _Disk(files, descriptor, str(path), wait)
        expected.check_size(source.name, source.size_bytes)
        label = read_label(source)
        expected.check_seal(source.name, label.seal)
        body = CheckedBody(source, label.body_bytes)
        for at in range(0, label.body_bytes, PIECE_BYTES):
            body.read(at, min(PIECE_BYTES, label.body_bytes - at))
    finally:
        files.close(descriptor)


@final
class _Disk(OpenFile):
    """A file that is read at a pace; an unreadable place on the disk is damage."""

    def __init__(self, files: Files, descriptor: int, name: str, wait: Callable[[int], None]) -> None:
        super().__init__(files, descriptor, name)
        self._wait = wait

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        self._wait(size_bytes)
        try:
            return super().read_at(offset, size_bytes)
        except StorageError as error:
            raise Corrupt(self.name, offset, "the file ends before the end in its footer") from error
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise _unreadable(self.name, offset) from error


def _unreadable(name: str, offset: int) -> Corrupt:
    return Corrupt(name, offset, "the disk cannot read these bytes")


def _damage(name: str, error: Corrupt | UnsupportedFormat) -> Corrupt:
    """Report an unknown format as damage: this program wrote the file in its own format, so bytes have changed."""
    if isinstance(error, Corrupt):
        return error
    offset = error.details.get("offset")
    return Corrupt(name, offset if isinstance(offset, int) else 0, error.message)


def main() -> int:
    """Read back the ordered version; return 0 if it was read to its end, damaged or not."""
    *order, worn = json.loads(sys.stdin.buffer.readline())
    leash.wear(worn)
    job = Job(*order)
    files = DirectFiles()
    pace = RateLimit(job.bytes_per_second)

    def wait(size_bytes: int) -> None:
        time.sleep(pace.take(size_bytes, time.monotonic()))

    try:
        counts = read_back(files, job, wait=wait, on_damage=_tell)
    except OSError as error:
        say_json({"error": f"{error.filename or job.directory}: {error.strerror}"})
        return 1
    say_json({"done": astuple(ReadBackOutcome(*counts, files.bypasses_cache))})
    return 0


def _tell(damage: Corrupt) -> None:
    expected, got = damage.details.get("expected"), damage.details.get("got")
    say_json({"damaged": [damage.file, damage.offset, damage.reason, expected, got]})


if __name__ == "__main__":
    sys.exit(main())
