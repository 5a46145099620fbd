"""Bugs that let somebody do or see something without the right to: no numbered promise, and kept all the same."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

MUTANTS: tuple[Mutant, ...] = (
    planted(
        "any user may do what nodes ask of each other",
        "gossipkv.node.access:Access.may",
        "return needed != Right.PEER or not self._proves",
        "return True",
        "tests/unit/node/test_access.py",
    ),
    planted(
        "a request that is handed off is not judged",
        "gossipkv.node.methods:Handlers.answer",
        "self._access.judge(arguments, caller)",
        "pass",
        "tests/unit/node/test_access.py",
    ),
    planted(
        "wrong tokens never wait",
        "gossipkv.node.access:Access._refuse_token",
        "await trio.sleep(PAUSE_S)",
        "await trio.sleep(0)",
        "tests/unit/node/test_access.py",
    ),
    planted(
        "a proof is good on each connection",
        "gossipkv.node.peers.proof:Prover.answer",
        'nonce = hmac.digest(self._secret, connection + theirs.nonce, "sha256")[:NONCE_BYTES]',
        'nonce = hmac.digest(self._secret, theirs.nonce, "sha256")[:NONCE_BYTES]',
        "tests/unit/node/peers/test_proof.py",
    ),
    planted(
        "a peer that proves nothing is a node",
        "gossipkv.node.peers.proof:Prover.answer",
        "if self.is_required:",
        "if False:",
        "tests/unit/node/peers/test_proof.py",
    ),
    planted(
        "the loop answers any user",
        "gossipkv.serving._published:PublishedTable.plan",
        "if database == NULL or not may_be_read(self, database):",
        "if database == NULL:",
        "tests/unit/serving/test_users_served_slow.py",
    ),
    planted(
        "a turn reads as the user of the turn before",
        "gossipkv.serving._intake:consume",
        "read_as(core.published, connection.user)",
        "pass",
        "tests/unit/serving/test_users_served_slow.py",
    ),
    planted(
        "a peer's uuid is unproven",
        "gossipkv.node.peers.hello:prove",
        'raise Unauthorized("no certificate by tls_peers proves a uuid: whoever this is, it is no node")',
        "return",
        "tests/unit/node/peers/test_dialling_slow.py",
    ),
    planted(
        "a method without a right is anybody's",
        "gossipkv.access.rights:of_method",
        "return METHODS.get(method, Right.PEER)",
        "return METHODS.get(method, Right.NONE)",
        "tests/unit/access/test_rights.py",
    ),
    planted(
        "the first bytes of a token are enough",
        "gossipkv.access.users:Users.by_token",
        "return user if hmac.compare_digest(digest, expected) else None",
        "return user",
        "tests/unit/access/test_users.py",
    ),
    planted(
        "a group may read a secret",
        "gossipkv.environment.private_file:read_text",
        "if mode & _OTHERS:",
        "if mode & stat.S_IRWXO:",
        "tests/unit/environment/test_private_file.py",
    ),
    planted(
        "a node's host name is unchecked",
        "gossipkv.client.tls:Tls.__init__",
        "self._object = context.wrap_bio(self._arrived, self._leaving, server_hostname=named)",
        "context.check_hostname = False; self._object = context.wrap_bio(self._arrived, self._leaving)",
        "tests/unit/client/test_credentials_slow.py",
    ),
    planted(
        "a name on the page is not escaped",
        "gossipkv.http.page.rendering:_with_code",
        "return escape(line)",
        "return Markup(line)",
        "tests/unit/http/page/test_view.py",
    ),
)
