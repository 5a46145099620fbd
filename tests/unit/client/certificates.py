"""Certificates of nodes and clients for tests, and `ssl` contexts with them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING

from gossipkv.access.certificates import Subject, new_authority, new_certificate

if TYPE_CHECKING:
    from pathlib import Path

DAY = timedelta(days=1)


class Authority:
    """An authority that writes its files into a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._number = count()
        self._now = datetime.now(UTC)
        self._signed = new_authority(name, self._now - DAY)
        self.file = directory / f"{name}.pem"
        self.file.write_text(self._signed.certificate)

    def pair(self, *hosts: str, days: tuple[int, int] = (-1, 1), itself: bool = False) -> Path:
        """Write a certificate and its key to one file; `days`: from and until; `itself`: self-signed."""
        authority, subject = (self._signed.certificate, self._signed.key), Subject(hosts[0], hosts)
        made = new_certificate(authority, subject, self._now + days[0] * DAY, days[1] - days[0])
        if itself:
            made = new_authority(hosts[0], self._now)
        file = self._directory / f"{self.file.stem}-{next(self._number)}.pem"
        file.touch(0o600)
        file.write_text(made.key + made.certificate)
        return file

    def client(self, pair: Path | None = None) -> ssl.SSLContext:
        """Return a client's context that trusts this authority, and shows a certificate."""
        context = ssl.create_default_context(cafile=self.file)
        if pair is not None:
            context.load_cert_chain(pair)
        return context

    def node(self, *hosts: str, asks: bool = False, **of_pair: object) -> ssl.SSLContext:
        """Return a node's context; `asks`: it requires client certificates of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pair(*hosts, **of_pair))
        if asks:
            context.load_verify_locations(self.file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
