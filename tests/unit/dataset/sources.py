"""Sources for the tests of datasets."""

import contextlib
import os

from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.environment.seam import READ_WRITE_NEW

MEMORY_BYTES = 8 << 20  # The memory of a builder.
# The memory of a whole building process; a sanitizer needs as much again.
BUILD_MEMORY = int(os.environ.get("BUILD_MEMORY", str(64 << 20)))


def put_version(files, root, name, contents, database="db"):
    """Write `<root>/<database>/<name>/part-0...` through any `Files`, and return the listed version."""
    path = str(root)
    for part in (database, name):
        path += f"/{part}"
        with contextlib.suppress(FileExistsError):
            files.make_directory(path)
        files.sync_directory(path.rpartition("/")[0] or "/")
    for number, data in enumerate(contents):
        descriptor = files.open(f"{path}/part-{number}", READ_WRITE_NEW)
        files.pwrite(descriptor, data, 0)
        files.sync(descriptor)
        files.close(descriptor)
    files.sync_directory(path)
    return SourceRoot(root, files).version(database, name)


def lines(**records):
    """Return the bytes of a file with these records."""
    return b"".join(f"{key}\t{value}\n".encode() for key, value in records.items())
