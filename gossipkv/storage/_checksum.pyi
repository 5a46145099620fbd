from _typeshed import ReadableBuffer

__pyx_capi__: dict[str, object]
HARDWARE: bool

def crc32c(data: ReadableBuffer, seed: int = 0) -> int: ...
def crc32c_scalar(data: ReadableBuffer, seed: int = 0) -> int: ...
