"""A METADATA participant that acts as all its parts, built from a test's values."""

from types import SimpleNamespace


def participant(**what):
    made = SimpleNamespace(**what)
    for part in ("service", "directory", "watcher", "poll", "peers", "words"):
        what.setdefault(part, made)
    made.__dict__.update(what)
    return made
