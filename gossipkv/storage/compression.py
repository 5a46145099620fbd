"""The lz4 functions, taken by address from the lz4 package's extension module, so that they run without the GIL.

Linking liblz4 instead would need its headers at build time, which a fresh machine does not have. If the package's
module hides its symbols, its Python functions are called, under the GIL.
"""

from __future__ import annotations

import ctypes

import lz4.block

from gossipkv.storage import _storage

# Page compressions, and their numbers in a file.
COMPRESSIONS = {"none": 0, "lz4": 1}

_COMPRESS = "LZ4_compress_default"
_DECOMPRESS_PARTIAL = "LZ4_decompress_safe_partial"


def _addresses() -> tuple[int, int]:
    """Return the addresses of the two functions, or zeros if the module does not export both."""
    try:
        library = ctypes.CDLL(lz4.block._block.__file__)  # noqa: SLF001  The module has no public name.
        functions = (getattr(library, _COMPRESS), getattr(library, _DECOMPRESS_PARTIAL))
    except (AttributeError, OSError):
        return 0, 0
    compress, decompress = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
    return compress, decompress


def _compress(data: bytes) -> bytes:
    return bytes(lz4.block.compress(data, store_size=False))


def _decompress(data: bytes, capacity: int) -> bytes:
    return bytes(lz4.block.decompress(data, uncompressed_size=capacity))


def install(*, native: bool = True) -> bool:
    """Choose the functions. Returns True if they run without the GIL. `native=False` is for tests."""
    compress, decompress = _addresses() if native else (0, 0)
    _storage.install_compression(compress, decompress, _compress, _decompress)
    return compress != 0


RUNS_WITHOUT_GIL = install()
