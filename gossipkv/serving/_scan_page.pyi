from collections.abc import Iterable

from gossipkv.storage.sorted_file import SortedFile

__pyx_capi__: dict[str, object]

def page(
    files: Iterable[SortedFile],
    start: bytes | None,
    end: bytes | None,
    reverse: bool,
    limit: int,
    max_bytes: int,
    max_value: int,
    slice_work: int = ...,
) -> tuple[bytes, bytes | None]: ...
