"""Maps for tests: a kind without rules, a function that does what its argument says, a store of pages."""

from __future__ import annotations

from typing import NamedTuple

from gossipkv.errors import ProtocolError
from gossipkv.register.metadata.operations import Edits, Operation, OperationRefusal
from gossipkv.register.metadata.pages import MissingPage
from gossipkv.register.metadata.tree import ChangedPages, MapKind, MapTree

FORBIDDEN = b"forbidden"  # A record, and a meta, which no map may have.


class Rules:
    """Nothing holds but that."""

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
    """Do what the argument says: puts, keys to look at, whether all is touched, whether it refuses."""
    puts, looks, touches_all, refuses = argument
    for key in looks:
        view.get(key)
    if refuses:
        raise OperationRefusal("NO", "as it was told")
    return Edits(dict(puts), None, touches_all)


FUNCTIONS = {("say", 1): say}


def operation(wanted):
    """An operation of the model, for the tree."""
    argument = (tuple(wanted.puts.items()), tuple(wanted.looks), wanted.touches_all, wanted.refuses)
    return Operation(wanted.id, wanted.base, "say", 1, argument)


class Store(NamedTuple):
    """Pages by their names, and which were asked for."""

    pages: dict[bytes, bytes]
    asked: list[bytes]

    def read(self, name):
        self.asked.append(name)
        if name not in self.pages:
            raise MissingPage(name)
        return self.pages[name]

    def take(self, changed):
        """Keep what an edit made, and return its root."""
        self.pages.update(changed.pages)
        return changed.root

    def open(self, root, kind=ANY.name):
        return MapTree.empty(kind) if root is None else MapTree.opened(self.read, root, kind)


def new_store():
    return Store({}, [])


NO_DIGEST = bytes(4)  # Of an operation that nobody asks for again.


def put_all(tree, config, puts, outcomes=(), meta=None) -> ChangedPages:
    """An edit with these puts (None: a deletion) and outcomes."""
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
