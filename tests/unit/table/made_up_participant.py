"""A METADATA participant that is all its parts as well, with what a test gives it."""

from types import SimpleNamespace


def participant(**what):
    made = SimpleNamespace(**what)
    for part in ("service", "directory", "watcher", "poll", "peers", "words"):
        what.setdefault(part, made)
    made.__dict__.update(what)
    return made
