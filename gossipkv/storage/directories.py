"""Directories and what is below them: made and removed so that a crash leaves nothing half there.

Everything here blocks, and raises OSError as the system says it; `storage_error` puts that into words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.errors import StorageError

if TYPE_CHECKING:
    from pathlib import PurePath

    from gossipkv.environment.seam import Files


def storage_error(error: OSError, path: PurePath, what: str) -> StorageError:
    """Return what the system refused, with the file that it names, else `path`."""
    where = error.filename or str(path)
    return StorageError(f"{where}: {what}: {error.strerror}", {"file": str(where), "errno": error.errno})


def make_directory(files: Files, path: PurePath) -> None:
    """Have a directory, with those above it, durable whoever made it: that one may have been killed before its sync."""
    try:
        is_there = files.stat(path).kind in {"directory", "link"}
    except FileNotFoundError:
        is_there = False
        if path.parent != path:
            make_directory(files, path.parent)
    if not is_there:
        files.make_directory(path)
    try:
        files.sync_directory(path.parent)
    except PermissionError:
        if not is_there:  # Else it was not made by us.
            raise


def clear_directory(files: Files, directory: PurePath) -> None:
    """Remove all that is in a directory."""
    for entry in files.list_directory(directory):
        remove_tree(files, directory / entry.name)


def remove_tree(files: Files, path: PurePath) -> None:
    """Remove a file, or a directory with all below it; links are removed and not followed."""
    try:
        kind = files.stat(path).kind
    except FileNotFoundError:
        return
    if kind == "directory":
        clear_directory(files, path)
        files.remove_directory(path)
    else:
        files.unlink(path)
