"""Trees on pages are cut in one way, edits touch few pages, and checks refuse forgeries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import GossipKVError, LimitExceeded, ProtocolError, UnsupportedFormat
from gossipkv.register.metadata.pages import (
    IDS,
    LEAF,
    MAX_PAGE_BYTES,
    IdsReference,
    Judged,
    KeptOutcome,
    MapEntry,
    MissingPage,
    OperationOutcome,
    PageReference,
    config_id,
    decode_branch,
    decode_ids,
    decode_leaf,
    decode_root,
    encode_branch,
    encode_ids,
    encode_leaf,
    encode_root,
    name_of,
)
from gossipkv.register.metadata.tree import KEPT, ChangedPages, MapTree, check_all, check_change, pages_of
from tests.unit.register.metadata.maps import ANY, FORBIDDEN, NO_DIGEST, new_store, put_all


def key(number):
    return number.to_bytes(8, "big")


def identity(number):
    return b"%020d" % number


def test_a_root_that_outgrows_its_page():
    """The error states the numbers."""
    puts = {b"%0250d" % number: bytes(7000) for number in range(4_800)}
    with pytest.raises(LimitExceeded, match=r"a map of 4800 entries needs \d+ bytes of leaves"):
        put_all(MapTree.empty("any"), 1, puts)


def test_ids_of_4096_full_transactions_fit():
    """The pages of ids of full transactions leave the leaves their share of the root."""
    row = Judged.of(
        config_id(1, 0), {identity(number): KeptOutcome(OperationOutcome.DONE, bytes(4)) for number in range(48)}
    )
    fitting = next(number for number in range(99) if len(encode_ids([row] * (number + 1))) > 16 << 10)
    number = -(-(KEPT + 1) // fitting) + 2
    pages = tuple(IdsReference(config_id(1, at), config_id(1, at), b"n" * 32) for at in range(number))
    store = new_store()
    root = store.open(store.take(put_all(MapTree.empty("any"), 1, {}))).root
    assert len(encode_root(root._replace(ids=pages))) - len(encode_root(root)) <= 20 << 10


def grown(size, number, store):
    """Return the root of a map with this many entries of a size, each put by its own transaction."""
    root = None
    for at in range(number):
        root = store.take(put_all(store.open(root), at + 1, {key(at): bytes(size)}))
    return root


def test_leaves_are_cut_and_join():
    """A leaf above 2 KiB becomes two halves; a small one joins its predecessor, the first one its successor."""
    store = new_store()
    root = grown(230, 9, store)
    assert [leaf.entries for leaf in store.open(root).root.below] == [5, 4]
    first = put_all(store.open(root), 10, {key(at): None for at in range(4)})
    assert [leaf.entries for leaf in store.open(store.take(first)).leaves] == [5]
    last = put_all(store.open(root), 10, {key(at): None for at in (5, 6, 7)})
    assert [leaf.entries for leaf in store.open(store.take(last)).root.below] == [6]
    none = put_all(store.open(root), 10, {key(at): None for at in range(9)})
    assert store.open(store.take(none)).root.below == ()
    assert store.open(store.take(put_all(store.open(root), 10, {b"": b""}))).root.below[0].first == b""


def test_what_is_too_large_is_refused():
    """An edit refuses too large keys, records and metas, and stays empty."""
    edit = MapTree.empty("any").edit(1)
    for put in ((b"k" * 256, b""), (b"k", bytes(8193))):
        with pytest.raises(LimitExceeded, match="at most 255 and 8192"):
            edit.put(*put)
    with pytest.raises(LimitExceeded, match="at most 4096"):
        edit.set_meta(bytes(4097))
    assert edit.is_empty
    edit.put(b"k" * 255, bytes(8192))
    assert not edit.is_empty


def test_an_edit_shows_what_it_did():
    """Deleting a missing key is no change."""
    store = new_store()
    root = store.take(
        put_all(MapTree.empty("any"), 1, {b"a": b"1", b"c": b"3"}, [(identity(1), OperationOutcome.DONE)])
    )
    edit = store.open(root).edit(2)
    edit.delete(b"b")
    assert edit.is_empty
    edit.put(b"b", b"2")
    edit.delete(b"c")
    assert edit.get(b"a") == MapEntry(b"a", 1, b"1")
    assert edit.get(b"b") == MapEntry(b"b", 2, b"2")
    assert edit.get(b"c") is None
    assert [edit.next_key(one) for one in (b"", b"a", b"b")] == [b"a", b"b", None]
    edit.put(b"d", b"4")
    edit.delete(b"d")
    assert edit.get(b"d") is None
    edit.record(identity(2), OperationOutcome.CONFLICT, b"2222")
    assert [edit.kept(identity(at), 0) for at in (1, 2, 3)] == [
        KeptOutcome(OperationOutcome.DONE, NO_DIGEST),
        KeptOutcome(OperationOutcome.CONFLICT, b"2222"),
        None,
    ]
    assert [entry.key for entry in store.open(store.take(edit.finish())).scan()] == [b"a", b"b"]


def test_an_outcome_is_looked_for_where_the_operation_could_be_judged():
    """An outcome is found up to 64 sequences after the base, and as many before it for reused ids."""
    store, root = new_store(), None
    for config in (100, 101):
        root = store.take(put_all(store.open(root), config, {}, [(identity(config), OperationOutcome.DONE)]))
    tree = store.open(root)
    found = [(config, base) for config in (100, 101) for base in (35, 36, 37, 99, 100, 101, 163, 164, 165)]
    assert [one for one in found if tree.outcome(identity(one[0]), one[1])] == [
        (100, 36), (100, 37), (100, 99), (100, 100), (100, 101), (100, 163), (101, 37), (101, 99), (101, 100),
        (101, 101), (101, 163), (101, 164),
    ]  # fmt: skip
    assert tree.outcome(b"\1" + identity(100)[:19], 99) is None  # The bytes span two neighbouring ids.


def test_a_leaf_that_overlaps_the_next_is_refused_where_it_is_read():
    """The full check and the look-up of a key refuse the leaf."""
    store, _, changed = base()
    forged = dict(leaf_forgeries(changed))["an entry that is the next leaf's"]
    store.pages.update(forged.pages)
    with pytest.raises(ProtocolError, match="has keys of the next leaf"):
        check_all(store.read, ANY, forged.root)
    with pytest.raises(ProtocolError, match="has keys of the next leaf"):
        store.open(forged.root).get(key(50))


def test_outcomes_are_kept_for_4096_sequences():
    """Outcomes are dropped page by page, each at most 16 KiB."""
    store, root = new_store(), None
    for config in range(1, 30):
        outcomes = [(b"%010d%010d" % (config, at), OperationOutcome.DONE) for at in range(48)]
        root = store.take(put_all(store.open(root), config, {}, outcomes))
    pages = store.open(root).root.ids
    assert [(page.first, page.last) for page in pages] == [(1, 13), (14, 26), (27, 28), (29, 29)]
    for config, left in ((13 + KEPT, 4), (14 + KEPT, 3), (27 + KEPT, 2), (29 + KEPT, 1), (30 + KEPT, 0)):
        tree = store.open(store.take(put_all(store.open(root), config, {})))
        assert tree.root.ids == pages[4 - left :]
        asked = [tree.outcome(b"%010d%010d" % (at, 47), at - 1) is OperationOutcome.DONE for at in (13, 14, 26, 27, 29)]
        assert asked == [left >= 4, left >= 3, left >= 3, left >= 2, left >= 1]


def test_a_map_of_another_kind_is_refused():
    """Such a map is not mistaken for an empty one."""
    store = new_store()
    root = store.take(put_all(MapTree.empty("other"), 1, {b"k": b"v"}))
    with pytest.raises(ProtocolError, match="the map is of kind 'other', expected 'any'"):
        store.open(root)


def base():
    """Return a store with a map of four leaves and two pages of ids, its root, and an honest next change."""
    store = new_store()
    puts = {key(at): b"%d" % at * 12 for at in range(120)}
    root = store.take(put_all(MapTree.empty("any"), 1, puts, meta=b"meta"))
    for config in range(2, 15):
        outcomes = [(b"%010d%010d" % (config, at), OperationOutcome.DONE) for at in range(48 if config < 14 else 1)]
        root = store.take(put_all(store.open(root), config, {key(config): b"r"}, outcomes))
    root = store.take(put_all(store.open(root), 14 + KEPT - 2, {}))
    changed = put_all(
        store.open(root), CONFIG, {key(50): b"new", key(51): None}, [(identity(1), OperationOutcome.DONE)]
    )
    return store, root, changed


CONFIG = 14 + KEPT  # The first of two pages of ids is dropped; the other one goes on.


def forge(changed, replaced, **fields):
    """Return a change with some pages and root fields replaced, all rightly named."""
    root = decode_root(changed.root, changed.pages[changed.root])
    names = {name: name_of(page) for name, page in replaced.items()}
    leaves = tuple(leaf._replace(name=names.get(leaf.name, leaf.name)) for leaf in root.below)
    ids = tuple(page._replace(name=names.get(page.name, page.name)) for page in root.ids)
    page = encode_root(root._replace(below=leaves, ids=ids)._replace(**fields))
    others = {name: one for name, one in changed.pages.items() if name != changed.root and name not in replaced}
    return ChangedPages(
        name_of(page), others | {name_of(one): one for one in replaced.values()} | {name_of(page): page}
    )


def is_taken(store, root, changed):
    try:
        check_change(store.read, ANY, root, changed, CONFIG)
    except GossipKVError as error:
        assert isinstance(error, ProtocolError | UnsupportedFormat | MissingPage), error
        return False
    return True


def parts(changed):
    """Return the root of a change, its one new leaf and its one new page of ids."""
    root = decode_root(changed.root, changed.pages[changed.root])
    (leaf,) = (one for one in root.below if one.name in changed.pages)
    (ids,) = (one for one in root.ids if one.name in changed.pages)
    return root, leaf, ids


def test_the_honest_change_passes():
    """The forgeries below start from this change."""
    store, root, changed = base()
    made, _, _ = parts(changed)
    assert (len(made.below), len(made.ids)) == (4, 1)
    assert is_taken(store, root, changed)
    assert is_taken(store, root, forge(changed, {}))


def leaf_forgeries(changed):
    """Yield leaves that no edit makes, with matching fields of the root."""
    root, leaf, _ = parts(changed)
    at = root.below.index(leaf)
    rows = decode_leaf(leaf.name, changed.pages[leaf.name])
    older = [row for row in rows if row.version < CONFIG]
    own = next(row for row in rows if row.version == CONFIG)
    after = root.below[at + 1].first
    for words, made in {
        "a record changed under its old version": [
            row._replace(record=b"x") if row is older[0] else row for row in rows
        ],
        "an old version lowered": [row._replace(version=0) if row is older[0] else row for row in rows],
        "the change under an older version": [row._replace(version=2) if row is own else row for row in rows],
        "a version of the future": [row._replace(version=CONFIG + 1) if row is own else row for row in rows],
        "an entry that is the next leaf's": [*rows, MapEntry(after, CONFIG, b"x")],
        "an entry below its border": [MapEntry(root.below[0].first, CONFIG, b"x"), *rows],
        "an entry of an old version that is new": [*rows, MapEntry(rows[-1].key + b"\0", 2, b"x")],
        "no order": [rows[1], rows[0], *rows[2:]],
        "a key twice": [rows[0], *rows],
    }.items():
        page = encode_leaf(made)
        said = leaf._replace(
            first=made[0].key, name=name_of(page), entries=len(made), size_bytes=len(page),
            newest=max(row.version for row in made),
        )  # fmt: skip
        yield words, forge(changed, {leaf.name: page}, below=(*root.below[:at], said, *root.below[at + 1 :]))


def root_forgeries(changed):
    root, leaf, ids = parts(changed)
    at = root.below.index(leaf)

    def said(**fields):
        return (*root.below[:at], leaf._replace(**fields), *root.below[at + 1 :])

    rows = decode_ids(ids.name, changed.pages[ids.name])
    alone = encode_ids(rows[-1:])
    for words, fields in {
        "one entry more": {"below": said(entries=leaf.entries + 1)},
        "another size": {"below": said(size_bytes=leaf.size_bytes - 1)},
        "an older newest version": {"below": said(newest=2)},
        "a lower border": {"below": said(first=leaf.first[:-1])},
        "a higher border": {"below": said(first=leaf.first + b"\0")},
        "a leaf that stands, with another count": {"below": (root.below[0]._replace(entries=1), *root.below[1:])},
        "a leaf that stands, with another border": {
            "below": (*root.below[:-1], root.below[-1]._replace(first=key(119)))
        },
        "a leaf in no order": {"below": root.below[::-1]},
        "a leaf that is not there": {"below": (*root.below, leaf._replace(first=b"\xff" * 9, name=b"n" * 32))},
        "another meta under the old version": {"meta": b"other"},
        "a version of nobody": {"version": 3},
        "a config id of yesterday": {"config": CONFIG - 1},
        "a config id of tomorrow": {"config": CONFIG + 1},
        "another kind": {"kind": "other"},
        "ids that are forgotten early": {"ids": ()},
        "ids of another time": {"ids": (*root.ids[:-1], ids._replace(first=ids.first + 1))},
    }.items():
        yield words, forge(changed, {}, **fields)
    yield (
        "ids without those before",
        forge(changed, {ids.name: alone}, ids=(IdsReference(CONFIG, CONFIG, name_of(alone)),)),
    )
    extra = encode_leaf([MapEntry(b"k", CONFIG, b"")])
    yield "a page that nobody names", changed._replace(pages=changed.pages | {name_of(extra): extra})
    yield "a page under another name", changed._replace(pages=changed.pages | {leaf.name: extra})
    without = {name: page for name, page in changed.pages.items() if name != leaf.name}
    yield "a page that is missing", changed._replace(pages=without)
    yield "no root", changed._replace(pages={leaf.name: changed.pages[leaf.name]})


@pytest.mark.parametrize("words", [words for make in (leaf_forgeries, root_forgeries) for words, _ in make(base()[2])])
def test_a_forged_change_is_refused(words):
    """Each forgery is refused alone, with all names right."""
    store, root, changed = base()
    forged = dict((*leaf_forgeries(changed), *root_forgeries(changed)))[words]
    assert forged != changed
    assert not is_taken(store, root, forged)


def test_a_cut_that_no_edit_makes_is_refused():
    """One leaf in two pieces or two leaves in one give the same map with other bytes."""
    store, root, changed = base()
    made, leaf, _ = parts(changed)
    at = made.below.index(leaf)
    rows = decode_leaf(leaf.name, changed.pages[leaf.name])
    pieces = [encode_leaf(rows[:9]), encode_leaf(rows[9:])]
    refer = [
        leaf._replace(first=row.key, name=name_of(page), entries=number, size_bytes=len(page), newest=newest)
        for row, page, number, newest in (
            (rows[0], pieces[0], 9, max(row.version for row in rows[:9])),
            (rows[9], pieces[1], len(rows) - 9, max(row.version for row in rows[9:])),
        )
    ]
    pages = {name: page for name, page in changed.pages.items() if name not in {leaf.name, changed.root}}
    page = encode_root(made._replace(below=(*made.below[:at], *refer, *made.below[at + 1 :])))
    forged = ChangedPages(name_of(page), pages | {name_of(one): one for one in (*pieces, page)})
    together = new_store()
    together.pages.update(store.pages | forged.pages)
    check_all(together.read, ANY, forged.root)  # The result is a valid map.
    assert not is_taken(store, root, forged)


@given(st.data())
def test_a_flipped_byte_under_right_names_changes_only_what_is_the_edit_s(data):
    """Any flipped byte with matching names is refused, or amounts to another permitted edit."""
    store, root, changed = base()
    _, leaf, ids = parts(changed)
    name = data.draw(st.sampled_from([changed.root, leaf.name, ids.name]))
    page = changed.pages[name]
    near = [at for mark in (b"new", identity(1)) for at in range(max(0, page.find(mark) - 12), page.find(mark) + 24)]
    at = data.draw(st.one_of(st.integers(0, len(page) - 1), st.sampled_from(near or [0]))) % len(page)
    flipped = page[:at] + bytes((page[at] ^ data.draw(st.integers(1, 255)),)) + page[at + 1 :]
    if name == changed.root:
        pages = {one: other for one, other in changed.pages.items() if one != name}
        forged = ChangedPages(name_of(flipped), pages | {name_of(flipped): flipped})
    else:
        forged = forge(changed, {name: flipped})
    if is_taken(store, root, forged):
        together = new_store()
        together.pages.update(store.pages | forged.pages)
        old, new = store.open(root), together.open(forged.root)
        stood = {entry.key: entry for entry in old.scan()}
        assert all(entry.version == CONFIG or stood[entry.key] == entry for entry in new.scan())
        assert new.root.version in {old.root.version, CONFIG}
        assert new.root.meta == old.root.meta or new.root.version == CONFIG
        (last,) = new.root.ids
        assert new.judged(last)[:-1] == old.judged(old.root.ids[-1])
        check_all(together.read, ANY, forged.root)


@pytest.mark.parametrize("config", [CONFIG - 1, CONFIG + 1, 5])
def test_a_change_is_for_one_config_id(config):
    """The change must have the expected config id, above the previous one."""
    store, root, changed = base()
    with pytest.raises(ProtocolError, match="expected"):
        check_change(store.read, ANY, root, changed, config)
    again = put_all(store.open(root), 14 + KEPT - 1, {b"k": b"v"})
    with pytest.raises(ProtocolError, match="expected"):
        check_change(store.read, ANY, store.take(again), again, 14 + KEPT - 1)


def test_the_rules_of_the_kind_hold():
    """Changed entries are checked, all entries if the meta changed, and the whole each time."""
    store, root, _ = base()
    for change, words in (
        ({"puts": {key(3): FORBIDDEN}}, "forbidden at"),
        ({"puts": {}, "meta": FORBIDDEN}, "forbidden as meta"),
        ({"puts": {key(at): None for at in range(120)} | {FORBIDDEN: b""}}, "forbidden as the first key"),
    ):
        changed = put_all(store.open(root), CONFIG, **change)
        with pytest.raises(ProtocolError, match=words):
            check_change(store.read, ANY, root, changed, CONFIG)
        beside = new_store()
        beside.pages.update(store.pages | changed.pages)
        with pytest.raises(ProtocolError, match=words):
            check_all(beside.read, ANY, changed.root)
    dark = store.take(put_all(store.open(root), CONFIG, {key(3): FORBIDDEN}))
    check_change(store.read, ANY, dark, put_all(store.open(dark), CONFIG + 1, {key(99): b""}), CONFIG + 1)
    anew = put_all(store.open(dark), CONFIG + 1, {}, meta=b"new")
    with pytest.raises(ProtocolError, match="forbidden at"):
        check_change(store.read, ANY, dark, anew, CONFIG + 1)


def test_what_is_missing_is_named():
    """Only the changed leaf of the old map is needed."""
    store, root, changed = base()
    old = decode_root(root, store.pages[root])
    _, leaf, _ = parts(changed)
    (gone,) = (one.name for one in old.below if one.first == leaf.first)
    keep = {root, gone, *(page.name for page in old.ids)}
    few = new_store()
    few.pages.update({name: store.pages[name] for name in keep})
    check_change(few.read, ANY, root, changed, CONFIG)
    del few.pages[gone]
    with pytest.raises(MissingPage) as raised:
        check_change(few.read, ANY, root, changed, CONFIG)
    assert raised.value.name == gone


def test_kinds_of_pages_have_their_numbers():
    """A leaf cannot stand for a page of ids."""
    assert LEAF != IDS
    store, root, changed = base()
    made, leaf, ids = parts(changed)
    swapped = tuple(one._replace(name=ids.name) if one == leaf else one for one in made.below)
    assert not is_taken(store, root, forge(changed, {}, below=swapped, ids=(ids._replace(name=leaf.name),)))
    assert MAX_PAGE_BYTES == 65536


def tall():
    """Return a store with a map of height 1, its root, an honest next change, and its changed branch."""
    store = new_store()
    root = store.take(put_all(MapTree.empty("any"), 1, {key(at): b"%d" % at * 12 for at in range(3_000)}))
    changed = put_all(store.open(root), CONFIG, {key(500): b"new"})
    made = decode_root(changed.root, changed.pages[changed.root])
    (branch,) = (page for page in made.below if page.name in changed.pages)
    assert made.height == 1
    assert len(changed.pages) == 3
    return store, root, changed, branch


def branch_forgeries():
    """Yield branches that no edit makes, each under a root that agrees with it if possible."""
    store, _, changed, branch = tall()
    made = decode_root(changed.root, changed.pages[changed.root])
    below = decode_branch(branch.name, changed.pages[branch.name])
    (leaf,) = (page for page in below if page.name in changed.pages)
    old = next(page for page in below if page != leaf)
    at = made.below.index(branch)
    for words, rows in {
        "a leaf that stands, with another count": [page._replace(entries=1) if page == old else page for page in below],
        "a leaf of another branch": [*below, made.below[at + 1]],
        "no order": below[::-1],
        "no leaf": (),
    }.items():
        page = encode_branch(rows)
        said = PageReference.of_branch(rows, name_of(page)) if rows else branch._replace(name=name_of(page))
        yield words, forge(changed, {branch.name: page}, below=(*made.below[:at], said, *made.below[at + 1 :]))
    for words, fields in {
        "another count": {"entries": branch.entries + 1},
        "another size": {"size_bytes": branch.size_bytes - 1},
        "an older newest version": {"newest": 1},
        "another first key": {"first": branch.first + b"\0"},
    }.items():
        yield words, forge(changed, {}, below=(*made.below[:at], branch._replace(**fields), *made.below[at + 1 :]))
    leaves = store.open(store.take(changed)).leaves
    yield "leaves where branches must be", forge(changed, {}, height=0)
    yield "a lower tree", forge(changed, {}, height=0, below=leaves)
    yield "a higher tree", forge(changed, {}, height=2)


def test_a_forged_branch_is_refused():
    """Each forgery is refused alone, with all names right."""
    store, root, changed, _ = tall()
    assert is_taken(store, root, changed)
    for words, forged in branch_forgeries():
        assert not is_taken(store, root, forged), words


def test_trees_grow_and_shrink():
    """A map gains and loses levels, each change passes the check, and pages are small."""
    store, root, heights = new_store(), None, []
    for config, puts in enumerate(
        (
            {key(at): bytes(40) for at in range(3_000)},
            {key(at): bytes(40) for at in range(3_000, 60_000)},
            {key(at): None for at in range(10, 60_000) if at % 1_000},
            {key(at): None for at in range(10, 60_000) if not at % 1_000},
        ),
        1,
    ):
        changed = put_all(store.open(root), config, puts)
        check_change(store.read, ANY, root, changed, config)
        root = store.take(changed)
        check_all(store.read, ANY, root)
        heights.append(store.open(root).root.height)
        assert max(map(len, changed.pages.values())) <= 3 << 10
    assert heights[0] == heights[2] == 1
    assert heights[1] == 2
    assert heights[3] == 0


def test_an_edit_reads_one_branch_of_each_level():
    """An edit of one entry, and its check, read the pages on the way to the entry; a scan reads on from there."""
    store = new_store()
    root = store.take(put_all(MapTree.empty("any"), 1, {key(at): bytes(700) for at in range(4_000)}))
    assert store.open(root).root.height == 2
    store.asked.clear()
    edit = store.open(root).edit(2)
    assert edit.get(key(2_000)).version == 1
    edit.put(key(2_000), b"new")
    changed = edit.finish()
    assert len(store.asked) == 4
    store.asked.clear()
    check_change(store.read, ANY, root, changed, 2)
    assert set(store.asked) <= {root} | {page.name for page in way(store, root, key(2_000))}
    store.asked.clear()
    tree = store.open(store.take(changed))
    assert [entry.key for entry in tree.scan(key(2_000), key(2_003))] == [key(at) for at in range(2_000, 2_003)]
    assert len(store.asked) <= 6


def way(store, root, at):
    """Return the references of the pages from a root to the leaf of a key."""
    tree, pages = store.open(root), []
    below = tree.root.below
    for level in range(tree.root.height, -1, -1):
        pages.append([page for page in below if page.first <= at][-1])
        below = tree.branch(pages[-1]) if level else ()
    return pages


def test_names_below_a_missing_branch_are_left_out():
    """All names are listed, each after the page that names it."""
    store, _, changed, branch = tall()
    store.take(changed)
    names = pages_of(store.read, changed.root)
    leaves = {page.name for page in store.open(changed.root).leaves}
    assert leaves < set(names)
    assert names.index(branch.name) < min(names.index(page.name) for page in store.open(changed.root).leaves)
    inside = {page.name for page in decode_branch(branch.name, store.pages.pop(branch.name))}
    assert set(names) - set(pages_of(store.read, changed.root)) == inside
