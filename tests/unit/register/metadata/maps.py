"""Maps for tests: a kind with few rules, a function that follows its argument, a store of pages."""

from __future__ import annotations

from typing import NamedTuple

from gossipkv.errors import ProtocolError
from gossipkv.register.metadata.operations import Edits, Operation, OperationRefusal
from gossipkv.register.metadata.pages import MissingPage
from gossipkv.register.metadata.tree import ChangedPages, MapKind, MapTree

FORBIDDEN = b"forbidden"  # A forbidden record or meta.


class Rules:
    """Rules that forbid only this record and meta."""

    def check_entry(self, key, record):
        if record == FORBIDDEN:
            raise ProtocolError(f"forbidden at {key}")

    def check_whole(self, entries, first):
        if first == FORBIDDEN:
            raise ProtocolError("forbidden as the first key")


def rules(meta):
    if meta == FORBIDDEN:
        raise ProtocolError("forbidden as meta")
    return Rules()


ANY = MapKind("any", rules)


def say(view, argument):
    """Follow the argument: puts, keys to look at, a claim to touch all, a refusal."""
    puts, looks, touches_all, refuses = argument
    for key in looks:
        view.get(key)
    if refuses:
        raise OperationRefusal("NO", "as it was told")
    return Edits(dict(puts), None, touches_all)


FUNCTIONS = {("say", 1): say}


def operation(wanted):
    """Return the operation of the tree for an operation of the model."""
    argument = (tuple(wanted.puts.items()), tuple(wanted.looks), wanted.touches_all, wanted.refuses)
    return Operation(wanted.id, wanted.base, "say", 1, argument)


class Store(NamedTuple):
    """Pages by their names, and the names that were read."""

    pages: dict[bytes, bytes]
    asked: list[bytes]

    def read(self, name):
        self.asked.append(name)
        if name not in self.pages:
            raise MissingPage(name)
        return self.pages[name]

    def take(self, changed):
        """Store the pages of an edit and return its root."""
        self.pages.update(changed.pages)
        return changed.root

    def open(self, root, kind=ANY.name):
        return MapTree.empty(kind) if root is None else MapTree.opened(self.read, root, kind)


def new_store():
    return Store({}, [])


NO_DIGEST = bytes(4)  # The digest of an operation that is never repeated.


def put_all(tree, config, puts, outcomes=(), meta=None) -> ChangedPages:
    """Return the pages of an edit with these puts (None: a deletion) and outcomes."""
    edit = tree.edit(config)
    for key, record in puts.items():
        if record is None:
            edit.delete(key)
        else:
            edit.put(key, record)
    for one, outcome in outcomes:
        edit.record(one, outcome, NO_DIGEST)
    if meta is not None:
        edit.set_meta(meta)
    return edit.finish()
