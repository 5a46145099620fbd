def read_records(
    packed: bytes,
    at: int,
    start: bytes | None,
    end: bytes | None,
    reverse: bool,
    limit: int,
    asked: tuple[int, int, bytes],
) -> tuple[bytes | None, int]: ...
def merge(
    runs: list[tuple[bytes, int, bool]], reverse: bool, limit: int, max_bytes: int, max_value: int
) -> tuple[bytes, bytes | None]: ...
