"""Where the lz4 functions come from: the lz4 package's own extension module, by address, so that no GIL is needed.

The alternative, linking liblz4, needs its headers at build time, which a fresh machine does not have.  Where the
package's module hides its symbols, its Python functions serve, under the GIL.
"""

from __future__ import annotations

import ctypes

import lz4.block

from gossipkv.storage import _storage

# How pages may be compressed, and the number that says so in a file.
COMPRESSIONS = {"none": 0, "lz4": 1}

_COMPRESS = "LZ4_compress_default"
_DECOMPRESS_PARTIAL = "LZ4_decompress_safe_partial"


def _addresses() -> tuple[int, int]:
    """The addresses of the two functions, or zeros where the module does not export both."""
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
    """Choose the functions; says whether they run without the GIL.  `native=False` is for tests."""
    compress, decompress = _addresses() if native else (0, 0)
    _storage.install_compression(compress, decompress, _compress, _decompress)
    return compress != 0


RUNS_WITHOUT_GIL = install()
