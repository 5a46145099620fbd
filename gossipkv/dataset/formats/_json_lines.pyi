from typing import Self, final

from gossipkv.dataset.formats._lines import Lines

@final
class JsonLines(Lines):
    def __new__(cls, name: str, max_value_bytes: int, max_line_bytes: int, key: str, value: str) -> Self: ...
