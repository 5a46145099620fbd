"""Hello admits nodes that hold a key, and replayed proofs help no other node."""

from __future__ import annotations

from itertools import product

import pytest

from gossipkv.errors import Unauthorized
from gossipkv.gossip.packets.key_ring import Key, key
from gossipkv.node.peers.hello import Hello
from gossipkv.node.peers.proof import NONCE_BYTES, Prover
from gossipkv.protocol import PROTOCOL_MAX

FIRST, SECOND, FOREIGN = key(b"1" * 32), key(b"2" * 32), key(b"3" * 32)
A, B, C = (Hello(PROTOCOL_MAX, b"c" * 8, name * 16, 3) for name in (b"a", b"b", b"x"))
NONCE, OTHER = b"n" * NONCE_BYTES, b"o" * NONCE_BYTES


def prover(*keys: Key, secret: bytes = b"s" * 32, is_required: bool = True) -> Prover:
    return Prover(lambda: keys, secret, is_required=is_required)


def asked(asking: Prover, answering: Prover, *, connection: bytes = b"1", nonce: bytes = NONCE) -> list[Hello]:
    """Run the hello of A and B to its end, and return all messages."""
    first = A._replace(nonce=nonce)
    answer, is_proven = answering.answer(B, first, connection)
    assert not is_proven
    second = asking.ask(first, answer)
    assert second is not None
    last, is_proven = answering.answer(B, second, connection)
    assert is_proven
    return [first, answer, second, last]


@pytest.mark.parametrize(("theirs", "mine"), [
    ((FIRST,), (FIRST,)), ((FIRST, SECOND), (SECOND, FIRST)), ((FIRST,), (FIRST, SECOND)), ((FIRST,), (SECOND, FIRST)),
])  # fmt: skip
def test_who_shares_the_keys_is_known(theirs, mine):
    """The order of keys does not matter, so keys can be changed in the same steps as those of packets."""
    if theirs[0] in mine and mine[0] in theirs:
        asked(prover(*theirs), prover(*mine))
    else:
        with pytest.raises(Unauthorized, match="the answering node"):
            asked(prover(*theirs), prover(*mine))


def test_who_has_none_of_the_keys_is_refused():
    """Both the asking and the answering node refuse."""
    with pytest.raises(Unauthorized, match="the answering node"):
        asked(prover(FIRST), prover(FOREIGN))
    first = A._replace(nonce=NONCE)
    answer, _ = prover(FIRST).answer(B, first, b"1")
    forged = prover(FOREIGN).answer(B, first, b"1")[0].proof
    same_id = FIRST.id + forged[len(FIRST.id) :]
    for proof in (forged, same_id, answer.proof[:-1], answer.proof + b"\0", answer.proof[:4], b"x"):
        with pytest.raises(Unauthorized, match="the asking node"):
            prover(FIRST).answer(B, first._replace(proof=proof), b"1")
        with pytest.raises(Unauthorized, match="the answering node"):
            prover(FIRST).ask(first, answer._replace(proof=proof))


def test_what_was_heard_is_of_no_use():
    """Replays fail on another connection, life, node or direction, and with other nonces."""
    node = prover(FIRST)
    first, answer, second, last = asked(node, node)
    for said in (second, second._replace(proof=answer.proof), second._replace(proof=last.proof)):
        with pytest.raises(Unauthorized):
            node.answer(B, said, b"2")
        with pytest.raises(Unauthorized):
            prover(FIRST, secret=b"t" * 32).answer(B, said, b"1")
    for proof in (answer.proof, last.proof):  # Reflected.
        with pytest.raises(Unauthorized):
            node.answer(B, first._replace(proof=proof), b"1")
    with pytest.raises(Unauthorized):
        node.answer(B, second._replace(uuid=C.uuid), b"1")
    with pytest.raises(Unauthorized):
        node.answer(C, second, b"1")
    with pytest.raises(Unauthorized):
        node.answer(B, second._replace(nonce=OTHER), b"1")
    for wrong in (
        (first, answer._replace(proof=second.proof)), (first._replace(nonce=OTHER), answer),
        (first._replace(uuid=C.uuid), answer), (first, answer._replace(uuid=C.uuid)),
        (first, answer._replace(nonce=OTHER)),
    ):  # fmt: skip
        with pytest.raises(Unauthorized, match="the answering node"):
            node.ask(*wrong)


def test_whose_bytes_are_whose_is_never_in_doubt():
    """Nonces of other lengths fail, so that bytes cannot shift between neighbouring fields."""
    node = prover(FIRST)
    for size, connection in product((0, 1, 15, 17, 32), (b"1", b"")):
        with pytest.raises(Unauthorized):
            asked(node, node, connection=connection, nonce=b"n" * size)


def test_no_two_connections_have_the_same_nonce():
    """Nonces differ within a process and between processes."""
    nonces = {
        prover(FIRST, secret=secret).answer(B, A._replace(nonce=theirs), connection)[0].nonce
        for secret, theirs, connection in product((b"s", b"t"), (NONCE, OTHER), (b"0 1", b"0 2", b"1 1"))
    }
    assert len(nonces) == 12
    assert {len(nonce) for nonce in nonces} == {NONCE_BYTES}


def test_on_the_way_to_keys_nobody_has_to_prove_anything():
    """Nodes with keys prove themselves, and a node without keys is accepted as well."""
    on_the_way = prover(FIRST, is_required=False)
    asked(on_the_way, on_the_way)
    assert on_the_way.answer(B, A, b"1") == (B, False)
    assert on_the_way.ask(A._replace(nonce=NONCE), B) is None
    with pytest.raises(Unauthorized, match="the asking node"):
        prover(FIRST).answer(B, A, b"1")
    with pytest.raises(Unauthorized, match="the answering node"):
        prover(FIRST).ask(A._replace(nonce=NONCE), B)
