"""The contents of an owner's branch at each version, kept for ever.

A reader that shows a version must show exactly the contents recorded here.
"""

from __future__ import annotations


class History:
    def __init__(self) -> None:
        self.states: list[dict[str, bytes]] = [{}]
        self.withdrawn_at: list[tuple[str, int]] = []

    @property
    def version(self) -> int:
        return len(self.states) - 1

    def publish(self, path: str, value: bytes) -> None:
        """Put a key in the next version; an unchanged value makes no version."""
        if self.states[-1].get(path) != value:
            self.states.append({**self.states[-1], path: value})

    def withdraw(self, path: str) -> bool:
        if path not in self.states[-1]:
            return False
        self.states.append({key: value for key, value in self.states[-1].items() if key != path})
        self.withdrawn_at.append((path, self.version))
        return True

    def wrong(self, version: int, shown: dict[str, bytes]) -> str | None:
        """Return why a reader's contents at a version are no state of the owner; None if they are."""
        if version > self.version:
            return f"version {version} was never published"
        true = self.states[version]
        for path in sorted(set(true) | set(shown)):
            if true.get(path) != shown.get(path):
                return f"at version {version}, {path!r} is {shown.get(path)!r}, and was {true.get(path)!r}"
        return None
