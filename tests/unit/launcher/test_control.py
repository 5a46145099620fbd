"""A launcher handles all answers of a supervisor."""

from __future__ import annotations

import threading

import pytest

from gossipkv.errors import LocalError
from gossipkv.launcher import Cluster, NotUp, control


@pytest.fixture
def answered(tmp_path):
    """`answered(said)` returns a cluster whose supervisor always answers that."""
    listener = control.listen(tmp_path)
    listener.settimeout(60)
    threads = []

    def answer(said):
        connection, _ = listener.accept()
        with connection:
            control.receive(connection)
            connection.sendall(said)

    def answered(said):
        threads.append(threading.Thread(target=answer, args=(said,)))
        threads[-1].start()
        return Cluster(tmp_path)

    yield answered
    for thread in threads:
        thread.join()
    listener.close()


@pytest.mark.parametrize(
    "said",
    [b"what?\n", b"[]\n", b"\xff\n", b"{}\n", b'{"nodes": 7}\n', b'{"nodes": [7]}\n', b'{"nodes": [{"index": 1}]}\n'],
)
def test_an_answer_of_another_version(answered, said):
    """The error says that the version differs, and how to go on."""
    with pytest.raises(
        LocalError,
        match=r"\(process [0-9]+\) gave an answer of unknown form.*end it with `gossipkv cluster down --data \S+`",
    ):
        answered(said).status()


def test_no_answer(answered):
    """The supervisor has ended."""
    with pytest.raises(NotUp, match="ended before it answered"):
        answered(b"").status()


def test_a_command_that_can_be_typed(tmp_path):
    """The directory is quoted for a shell; the default directory would be another cluster."""
    place = tmp_path / "a b"
    place.mkdir()
    with pytest.raises(NotUp, match=r"is not up; `gossipkv cluster up --data '\S*/a b'` starts it"):
        control.connect(place)
