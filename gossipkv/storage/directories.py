"""Directories made and removed so that a crash leaves nothing half done.

All functions block and raise the system's OSError; `storage_error` turns that into a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.errors import StorageError

if TYPE_CHECKING:
    from pathlib import PurePath

    from gossipkv.environment.seam import Files


def storage_error(error: OSError, path: PurePath, problem: str) -> StorageError:
    """Return a `StorageError` for the system's refusal, with the file that the OSError names, else `path`."""
    where = error.filename or str(path)
    return StorageError(f"{where}: {problem}: {error.strerror}", {"file": str(where), "errno": error.errno})


def make_directory(files: Files, path: PurePath) -> None:
    """Make a directory and its parents, durably.

    An existing directory's parent is synced too: its maker may have been killed before the sync.
    """
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
        if not is_there:  # The directory existed already, so its durability is not ours to ensure.
            raise


def clear_directory(files: Files, directory: PurePath) -> None:
    """Remove everything in a directory."""
    for entry in files.list_directory(directory):
        remove_tree(files, directory / entry.name)


def remove_tree(files: Files, path: PurePath) -> None:
    """Remove a file, or a directory with everything below it; links are removed and not followed."""
    try:
        kind = files.stat(path).kind
    except FileNotFoundError:
        return
    if kind == "directory":
        clear_directory(files, path)
        files.remove_directory(path)
    else:
        files.unlink(path)
