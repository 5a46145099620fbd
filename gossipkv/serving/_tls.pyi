from pathlib import Path
from typing import Self, final

NAMES: list[str]
__pyx_capi__: dict[str, object]

@final
class Tls:
    expires_s: int
    def __new__(cls, certificate: Path, key: Path, clients: Path | None = None, *, listeners: int) -> Self: ...
