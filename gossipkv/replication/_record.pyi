from typing import NamedTuple

__pyx_capi__: dict[str, object]  # What `_record.pxd` declares, for `cimport`.

PUT: int
DELETED: int

class Record(NamedTuple):
    time: int
    assignment: int
    counter: int
    kind: int
    dependencies: bytes
    value: bytes

def encode(time: int, assignment: int, counter: int, kind: int, dependencies: bytes, value: bytes, /) -> bytes: ...
def decode(data: bytes, /) -> Record: ...
def check(data: bytes, /) -> None: ...
def wins(one: bytes, other: bytes, /) -> bool: ...
def dot(data: bytes, /) -> bytes: ...
def value(data: bytes, /) -> bytes | None: ...
