from collections.abc import Callable

__pyx_capi__: dict[str, object]

def install(
    compress_address: int,
    partial_address: int,
    compress: Callable[[bytes], bytes],
    decompress: Callable[[bytes, int], bytes],
) -> None: ...
