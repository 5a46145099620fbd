"""Bugs planted in how clients make sure of nodes, and in how they show who they are."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted_at

CREDENTIALS = "gossipkv.client.credentials:Credentials"
TLS = "gossipkv.client.tls:Tls"
LINK = "gossipkv.client.link:BlockingLink"
AT = "client = self._at[address] = Client([address], timeout_ms=self._timeout_ms, credentials=self._credentials)"

MUTANTS_OF_CREDENTIALS: tuple[Mutant, ...] = (
    *planted_at(
        "tests/unit/client/test_credentials.py",
        (
            "a node's host name is unchecked",
            f"{TLS}.__init__",
            "self._object = context.wrap_bio(self._arrived, self._leaving, server_hostname=named)",
            "context.check_hostname = False; self._object = context.wrap_bio(self._arrived, self._leaving)",
        ),
        (
            "whoever signed a node's certificate is trusted",
            "gossipkv.client.credentials:_checked",
            "return tls",
            "tls.check_hostname = False; tls.verify_mode = ssl.CERT_NONE; return tls",
        ),
        (
            "clients of one node show nothing",
            "gossipkv.client.blocking:Client.at",
            AT,
            AT.replace(", credentials=self._credentials", ""),
        ),
        (
            "a refused token is tried at the next node",
            "gossipkv.client.dialler:Dialler.link",
            "except REFUSALS:",
            "except ():",
        ),
        (
            "tasks that are refused share an error",
            "gossipkv.client.dispatcher:Dispatcher.on_refused",
            "self._finish(request, copy(error))  # Each is raised elsewhere.",
            "self._finish(request, error)",
        ),
        (
            "what represents credentials has the token",
            f"{CREDENTIALS}.__repr__",
            'shown = "no token" if self._token is None else "a token"',
            "shown = self._token",
        ),
        (
            "the last word of a node is not heard",
            f"{LINK}._take",
            "if self._tls.has_ended:",
            "if False:",
        ),
    ),
    *planted_at(
        "tests/unit/client/test_tls.py",
        (
            "a broken record is passed over",
            f"{TLS}.open",
            "self.has_ended = True  # What came whole before counts.",
            "pass",
        ),
    ),
)
