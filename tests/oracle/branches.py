"""What an owner's branch was at each of its versions: everything, kept for ever.

A reader that shows a version shows exactly what stands here under it, or it is wrong.
"""

from __future__ import annotations


class History:
    """One owner's epoch."""

    def __init__(self) -> None:
        self.states: list[dict[str, bytes]] = [{}]
        self.withdrawn_at: list[tuple[str, int]] = []

    @property
    def version(self) -> int:
        return len(self.states) - 1

    def publish(self, path: str, value: bytes) -> None:
        """The next version has this key; the same value again is no change."""
        if self.states[-1].get(path) != value:
            self.states.append({**self.states[-1], path: value})

    def withdraw(self, path: str) -> bool:
        if path not in self.states[-1]:
            return False
        self.states.append({key: value for key, value in self.states[-1].items() if key != path})
        self.withdrawn_at.append((path, self.version))
        return True

    def wrong(self, version: int, shown: dict[str, bytes]) -> str | None:
        """Why what a reader shows at a version is no state of the owner."""
        if version > self.version:
            return f"version {version} was never published"
        true = self.states[version]
        for path in sorted(set(true) | set(shown)):
            if true.get(path) != shown.get(path):
                return f"at version {version}, {path!r} is {shown.get(path)!r}, and was {true.get(path)!r}"
        return None
