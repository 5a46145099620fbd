from typing import Self, final

from gossipkv.dataset.formats._lines import Lines

@final
class TabSeparatedLines(Lines):
    def __new__(cls, name: str, max_value_bytes: int) -> Self: ...
