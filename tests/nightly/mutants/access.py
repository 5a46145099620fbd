"""Bugs planted in who may do what."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted_at

RIGHTS = "gossipkv.access.rights"
USERS = "gossipkv.access.users"
THROTTLE = "gossipkv.access.throttle:Throttle"
CERTIFICATES = "gossipkv.access.certificates"
PRIVATE = "gossipkv.environment.private_file"

ACCESS = "gossipkv.node.access:Access"
PROOF = "gossipkv.node.peers.proof"
PERMISSIONS = "gossipkv.http.permissions:Permissions"
LOOP = "gossipkv.serving"

MUTANTS_OF_ACCESS: tuple[Mutant, ...] = (
    *planted_at(
        "tests/unit/node/test_access.py",
        (
            "an old token is good for ever",
            f"{ACCESS}.use",
            "self._known[number] = new.pop((user.name, user.digest), None)",
            "self._known[number] = new.pop((user.name, user.digest), user)",
        ),
        (
            "what nodes ask of each other is anybody's",
            f"{ACCESS}.may",
            "return needed != Right.PEER or not self._proves",
            "return True",
        ),
        (
            "what anonymous may do a user may as well",
            f"{ACCESS}.may",
            "return user is not None and user.may(needed, database)",
            "return user is not None and any(one.may(needed, database) for one in (user, self._users.anonymous))",
        ),
        (
            "what is handed off is not judged",
            "gossipkv.node.methods:Handlers.answer",
            "self._access.judge(arguments, caller)",
            "pass",
        ),
        (
            "what is handed off is judged when it is done",
            "gossipkv.node.methods:Handlers.answer",
            "self._access.judge(arguments, caller)",
            "own(arguments); arguments.rewind(); self._access.judge(arguments, caller)",
        ),
        (
            "wrong tokens never wait",
            f"{ACCESS}._refuse_token",
            "if not self._throttle.wrong(address, self._now()):",
            "if True:",
        ),
        (
            "a right token waits with the wrong ones of its address",
            f"{ACCESS}.prove",
            "user = self._users.by_token(token)",
            "user = None if self._paused else self._users.by_token(token)",
        ),
    ),
    *planted_at(
        "tests/unit/node/peers/test_proof.py",
        (
            "a proof is good on each connection",
            f"{PROOF}:Prover.answer",
            'nonce = hmac.digest(self._secret, connection + theirs.nonce, "sha256")[:NONCE_BYTES]',
            'nonce = hmac.digest(self._secret, theirs.nonce, "sha256")[:NONCE_BYTES]',
        ),
        (
            "a proof is good in the other direction",
            f"{PROOF}:_tag",
            'return hmac.digest(key.secret, b"".join((role, *challenge)), "sha256")',
            'return hmac.digest(key.secret, b"".join(challenge), "sha256")',
        ),
        (
            "a proof is good for other nodes",
            f"{PROOF}:_tag",
            'return hmac.digest(key.secret, b"".join((role, *challenge)), "sha256")',
            'return hmac.digest(key.secret, b"".join((role, *challenge[:2])), "sha256")',
        ),
        ("who proves nothing is a node", f"{PROOF}:Prover.answer", "if self.is_required:", "if False:"),
    ),
    *planted_at(
        "tests/unit/http/test_permissions.py",
        (
            "what was said of a token stands for ever",
            f"{PERMISSIONS}._user",
            "if kept is not None and now < kept[0] + KEPT_S:",
            "if kept is not None:",
        ),
        (
            "who sees the page reads what it looks up",
            "gossipkv.http.site:Site._needed",
            'needed.append((Right.READ, found.database or found.options.get("database")))',
            "pass",
        ),
        (
            "scripts read the page's cookie",
            f"{PERMISSIONS}.log_in",
            "cookie = f\"{COOKIE}={safe}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if is_secure else ''}\"",
            "cookie = f\"{COOKIE}={safe}; Path=/; SameSite=Strict{'; Secure' if is_secure else ''}\"",
        ),
    ),
    *planted_at(
        "tests/unit/serving/test_users_served.py",
        (
            "the loop answers whoever asks",
            f"{LOOP}._published:PublishedTable.plan",
            "if database == NULL or not may_be_read(self, database):",
            "if database == NULL:",
        ),
        (
            "the loop has scans read by whoever asks",
            f"{LOOP}._scan_plan:make_plan",
            "if database == NULL or not may_be_read(table, database):",
            "if database == NULL:",
        ),
        (
            "a turn reads as whoever had the one before",
            f"{LOOP}._intake:consume",
            "read_as(core.published, connection.user)",
            "pass",
        ),
        (
            "after RESET it is who it was",
            f"{LOOP}._resp_commands:take_word_of_connection",
            "connection.user = connection.certified",
            "pass",
        ),
        (
            "a refused request is counted as served",
            f"{LOOP}._requests:conclude",
            "core.fresh_answers += 0 < outcome < UNDER_WAY",
            "core.fresh_answers += 0 < outcome < UNDER_WAY; core.counts[GETS] += blob_is(&request.method, b'get', 3)",
        ),
        (
            "who is gone goes on asking",
            f"{LOOP}._serving:Loop.end_those_of",
            "self.connections.finish(connection, CLOSED_UNAUTHORIZED)",
            "pass",
        ),
    ),
    *planted_at(
        "tests/unit/node/peers/test_dialling.py",
        (
            "whoever answers is the node that was dialled",
            "gossipkv.node.peers.hello:prove",
            "if uuid not in {None, proven}:",
            "if False:",
        ),
        (
            "a peer's uuid is unproven",
            "gossipkv.node.peers.hello:prove",
            'raise Unauthorized("no certificate by tls_peers proves a uuid: whoever this is, it is no node")',
            "return",
        ),
        (
            "whoever answers is not asked who it is",
            "gossipkv.node.peers.dialling:Dialling.connect",
            "hello.prove(await secured.shake(), uuid)",
            "await secured.shake()",
        ),
    ),
    *planted_at(
        "tests/unit/node/peers/test_dialling.py",
        (
            "whoever signs for users signs for nodes",
            "gossipkv.serving._tls:is_signed",
            "and openssl.is_signed(verdict) == 1",
            "and openssl.is_signed(verdict) != 7",
        ),
    ),
    *planted_at(
        "tests/unit/serving/test_tls.py",
        (
            "who speaks plainly is served where TLS is spoken",
            "gossipkv.serving._serving:Loop.welcome",
            "elif self.transport.is_secured(listener):",
            "elif False:",
        ),
    ),
    *planted_at(
        "tests/ci/unit/serving/test_tls_cut.py",
        (
            "what has spoken on a connection is kept",
            f"{LOOP}._secured:Secured.forget",
            "tls_free(self.lines[fd].tls)",
            "pass",
        ),
    ),
    *planted_at(
        "tests/unit/access/test_rights.py",
        (
            "a right is looked up by prefix",
            f"{RIGHTS}:Grant.holds",
            "return not self.pattern or (database is not None and fnmatchcase(database, self.pattern))",
            "return not self.pattern or (database is not None and fnmatchcase(database, self.pattern + '*'))",
        ),
        (
            "who may nothing of a database may what names none",
            f"{RIGHTS}:Grant.holds",
            "return not self.pattern or (database is not None and fnmatchcase(database, self.pattern))",
            "return not self.pattern or database is None or fnmatchcase(database, self.pattern)",
        ),
        (
            "a method without a right is anybody's",
            f"{RIGHTS}:of_method",
            "return METHODS.get(method, Right.PEER)",
            "return METHODS.get(method, Right.NONE)",
        ),
        (
            "a command of RESP without a right is anybody's",
            f"{RIGHTS}:of_method",
            "return COMMANDS.get(command.lower(), Right.PEER)",
            "return COMMANDS.get(command.lower(), Right.NONE)",
        ),
        (
            "a part of the page is read as a database",
            f"{RIGHTS}:of_path",
            "return Right.READ if key and not is_own and not is_asset else Right.SEE",
            "return Right.READ if key and not is_own else Right.SEE",
        ),
    ),
    *planted_at(
        "tests/unit/access/test_users.py",
        (
            "of a token the first bytes count",
            f"{USERS}:Users.by_token",
            "return user if hmac.compare_digest(digest, expected) else None",
            "return user",
        ),
        (
            "what anonymous may is added to a user's",
            f"{USERS}:Users.by_token",
            "user = self._by_digest.get(digest[:_LOOKED_UP_BYTES])",
            "user = (u := self._by_digest.get(digest[:8])) and User(u.name, u.grants + self.anonymous.grants, digest)",
        ),
        (
            "a certificate says anonymous",
            f"{USERS}:Users.by_certificate",
            "return None if name == ANONYMOUS else self.named.get(name)",
            "return self.named.get(name)",
        ),
    ),
    *planted_at(
        "tests/unit/access/test_throttle.py",
        (
            "a sixth token is free",
            f"{THROTTLE}.wrong",
            "most = now + FREE * EACH_S",
            "most = now + (FREE + 1) * EACH_S",
        ),
        (
            "who was wrong first is forgotten first, though wrong again",
            f"{THROTTLE}.wrong",
            "clear_at = max(self._clear_at.pop(group, now), now) + EACH_S",
            "clear_at = max(self._clear_at.get(group, now), now) + EACH_S",
        ),
        (
            "who was wrong a thousand times pays for each of them",
            f"{THROTTLE}.wrong",
            "self._clear_at[group] = min(clear_at, most)",
            "self._clear_at[group] = clear_at",
        ),
    ),
    *planted_at(
        "tests/unit/access/test_certificates.py",
        (
            "a client's certificate may serve",
            f"{CERTIFICATES}:new_certificate",
            "purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]",
            "purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH][: 2 - bool(subject.hosts)]",
        ),
        (
            "a certificate outlives its authority",
            f"{CERTIFICATES}:new_certificate",
            "end = min(now + timedelta(days=days), issuer.not_valid_after_utc)",
            "end = now + timedelta(days=days)",
        ),
    ),
    *planted_at(
        "tests/unit/environment/test_private_file.py",
        ("a group may read a secret", f"{PRIVATE}:read_text", "if mode & _OTHERS:", "if mode & stat.S_IRWXO:"),
        (
            "who edits does not wait",
            f"{PRIVATE}:edit",
            "fcntl.flock(directory, fcntl.LOCK_EX)  # And not the file, which another one is about to replace.",
            "pass",
        ),
    ),
)
