"""The keys that a load asks for: the same numbers if a draw is simple, the exact law if not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL = 2**64


class Stream:
    def __init__(self, seed: int) -> None:
        self.state = seed

    def draw(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % ALL
        mixed = (self.state ^ (self.state >> 30)) * 0xBF58476D1CE4E5B9 % ALL
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % ALL
        return mixed ^ (mixed >> 31)

    def below(self, count: int) -> int:
        """Return a number below another: the upper half, scaled."""
        return (self.draw() >> 32) * count >> 32


def draws(
    shape: str,
    size: int,
    count: int,
    *,
    seed: int,
    hot_requests: float = 0.9,
    hot_keys: float = 0.1,
    first: int = 0,
    stride: int = 1,
    absent: Sequence[int] = (),
    misses: float = 0,
) -> list[int]:
    """Return the first `count` keys, of every shape but Zipf's."""
    stream, found = Stream(seed), []
    hot = min(size, max(1, int(hot_keys * size + 0.5)))
    at = first
    for _ in range(count):
        if int(misses * ALL) > 0 and (misses >= 1 or stream.draw() < min(misses * ALL, ALL - 2048)):
            found.append(absent[stream.below(len(absent))])
        elif shape == "uniform":
            found.append(stream.below(size))
        elif shape == "hot":
            is_hot = stream.draw() < min(hot_requests * ALL, ALL - 2048) or hot == size
            found.append(stream.below(hot) if is_hot else hot + stream.below(size - hot))
        else:
            found.append(at % size)
            at += stride
    return found


def zipf_shares(size: int, theta: float) -> list[float]:
    """Return the share of each place, by the law itself."""
    weights = [place**-theta for place in range(1, size + 1)]
    return [weight / sum(weights) for weight in weights]


def kinds(weights: Sequence[float], count: int, *, seed: int) -> list[int]:
    if max(weights) == sum(weights):
        return [weights.index(max(weights))] * count
    stream = Stream(seed ^ 0x6B696E6473)
    bounds = [sum(weights[: at + 1]) / sum(weights) for at in range(len(weights))]
    drawn = [stream.draw() / ALL for _ in range(count)]
    return [next((at for at, bound in enumerate(bounds[:-1]) if each < bound), len(bounds) - 1) for each in drawn]
