"""Health endpoints: Sequins' form, and the checks for balancers and supervisors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gossipkv.errors import TimedOut, Unavailable
from gossipkv.http.health import healthz, livez, readyz
from gossipkv.status.judging.judge import judge
from tests.unit.http.node_info import Node, info
from tests.unit.status import reports

PAGE = Path(__file__).parents[3] / "docs" / "operators" / "monitoring.md"
GONE = Unavailable("127.0.0.1:7070 refuses\nconnections")


def entry(name, version, **states):
    return {"name": name, "kind": "dataset", "version": version, "partitions": 4, "states": states}


LACKS = {"partition_count": 8, "replication": 2, "missing": {"count": 3, "runs": "1-3"}}
DEAD = reports.said(members={"n3": "dead"}, all_say={"databases": {"geo": reports.entry("v2", version=LACKS)}})
WELL = judge(reports.said()).to_map()


async def yes():
    return True


async def no():
    return False


def lines(answer):
    return answer.body.decode().splitlines()


async def test_healthz_tells_every_version_by_node():
    """The JSON has a state by database, version and node; the status is 200 if any version is active."""
    databases = [entry("geo", "v2", v1="RETIRING", v2="ACTIVE", v3="BUILDING"), entry("new", None, v1="ERROR")]
    answer = await healthz(Node(info=info(), databases=databases))
    assert (answer.status, answer.headers) == (200, [(b"Content-Type", b"application/json")])
    assert json.loads(answer.body) == {
        "geo": {"v1": {"n1": "RETIRING"}, "v2": {"n1": "ACTIVE"}, "v3": {"n1": "BUILDING"}},
        "new": {"v1": {"n1": "ERROR"}},
    }


@pytest.mark.parametrize("databases", [[], [entry("geo", None)], [entry("geo", None, v1="BUILDING", v2="ERROR")]])
async def test_healthz_is_404_while_nothing_is_active(databases):
    """Without an ACTIVE version the status is 404, in the same form."""
    answer = await healthz(Node(info=info(), databases=databases))
    assert answer.status == 404
    assert json.loads(answer.body).keys() == {each["name"] for each in databases}


@pytest.mark.parametrize(("error", "code"), [(GONE, 502), (TimedOut("not in time"), 504)])
async def test_healthz_without_a_node(error, code):
    """A 404 would say that there is no data; the answer is one line with the wire's code."""
    for answers in ({"info": error}, {"info": info(), "databases": error}):
        answer = await healthz(Node(**answers))
        assert (answer.status, len(lines(answer))) == (code, 1)
        assert (b"X-GossipKV-Error", error.code.encode()) in answer.headers


async def test_livez_pings_the_node():
    """The answer is 503 with one line if the node does not answer."""
    node = Node(ping="pong")
    assert (await livez(node)).status == 200
    assert node.asked == [("ping",)]
    for error in (GONE, TimedOut("not in time")):
        answer = await livez(Node(ping=error))
        assert (answer.status, len(lines(answer))) == (503, 1)
        assert error.message.split()[0] in lines(answer)[0]


async def test_readyz_asks_for_one_thing():
    """A node that has joined and opened, and is not draining, is ready; only `info` is asked for."""
    node = Node(info=info())
    answer = await readyz(node, verbose=False, may_see=yes)
    assert (answer.status, lines(answer), node.asked) == (200, ["ready"], [("info",)])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"joined": False}, ["has not joined"]),
        ({"opened": False}, ["has not yet opened"]),
        ({"draining": True}, ["is draining"]),
        ({"opened": False, "draining": True}, ["has not yet opened", "is draining"]),
    ],
)
async def test_what_makes_a_node_unready(changed, words):
    """Each failed check gives 503 with a line that names it; `verbose` marks it."""
    told = info(ready={"joined": True, "opened": True, "draining": False} | changed)
    answer = await readyz(Node(info=told), verbose=False, may_see=yes)
    assert (answer.status, len(lines(answer))) == (503, 1)
    assert all(word in lines(answer)[0] for word in words)
    assert (b"X-GossipKV-Error", b"NOT_READY") in answer.headers
    verbose = await readyz(Node(info=told, verdict=WELL), verbose=True, may_see=yes)
    assert (verbose.status, lines(verbose)[-1]) == (503, lines(answer)[0])
    assert len([line for line in lines(verbose) if line.startswith("[-]")]) == len(changed)
    assert len([line for line in lines(verbose) if line.startswith("[+]")]) == 4 - len(changed)


async def test_trouble_elsewhere_does_not_make_a_node_unready():
    """The last verdict and its reasons are warnings, and the node stays ready."""
    verdict = judge(
        reports.said(
            members={"n3": "dead"},
            n1={"silent": "disk full", "geo": reports.entry("2", hold="2")},
            n2={"source_error": "denied", "geo": reports.entry("2", error="part-0: cut short")},
        )
    )
    node = Node(info=info(), verdict=verdict.to_map())
    answer = await readyz(node, verbose=True, may_see=yes)
    warnings = [line for line in lines(answer) if line.startswith("[!]")]
    assert (answer.status, lines(answer)[-1]) == (200, "ready")
    assert warnings[0] == "[!] the cluster: 3 things are wrong. 1 database, 3 members, 1 dead."
    for words in ("disk full", "n2: source: denied", "geo: part-0: cut short", "n3 is dead"):
        assert [line for line in warnings if words in line], words
    assert len(warnings) == 5
    assert not [line for line in warnings if "is held" in line]
    assert node.asked[-1] == ("verdict", {"last": True}), "a probe comes all the time, and asks for no new verdict"
    assert (await readyz(Node(info=info()), verbose=False, may_see=yes)).status == 200


async def test_why_the_cluster_is_not_well_is_told_to_whoever_may_see_it():
    """Without the right, only the number of problems is shown, and no files or contents."""
    said = reports.said(n2={"geo": reports.entry("2", error="/srv/geo/2/part-0: no TAB in 'salary of ana'")})
    node = Node(info=info(), verdict=judge(said).to_map())
    told = [lines(await readyz(node, verbose=True, may_see=may)) for may in (yes, no)]
    assert any("salary" in line for line in told[0])
    assert [line for line in told[1] if line.startswith("[!]")] == [
        "[!] the cluster: 1 thing is wrong. 1 database, 3 members, all alive."
    ]
    assert told[1][-1] == "ready"


async def test_a_sound_node_has_no_warnings():
    answer = await readyz(Node(info=info(), verdict=WELL), verbose=True, may_see=yes)
    assert lines(answer) == [
        "[+] the node answers", "[+] has joined its cluster", "[+] has opened its data", "[+] is not draining",
        "ready",
    ]  # fmt: skip


async def test_a_verdict_that_fails_is_a_warning():
    """An unknown verdict is a warning, and does not make the node unready."""
    answer = await readyz(Node(info=info(), verdict=TimedOut("not in time")), verbose=True, may_see=yes)
    assert (answer.status, lines(answer)[-1]) == (200, "ready")
    assert "[!] the verdict cannot be determined: not in time" in lines(answer)


@pytest.mark.parametrize("verbose", [False, True])
async def test_readyz_without_a_node(verbose):
    answer = await readyz(Node(info=GONE), verbose=verbose, may_see=yes)
    assert (answer.status, len(lines(answer))) == (503, 1)


@pytest.mark.parametrize("nonsense", [None, 7, [], {"ready": 3, "claimed_twice": 4}, {"ready": {"joined": "yes"}}])
async def test_nonsense_is_no_crash(nonsense):
    """A check without a plain statement counts as failed."""
    answer = await readyz(Node(info=nonsense, verdict=nonsense), verbose=True, may_see=yes)
    assert answer.status == 503
    assert (await healthz(Node(info=nonsense, databases=nonsense))).status == 404


async def test_the_page_shows_what_is_answered():
    """Both examples in the documentation are literal answers."""
    page = PAGE.read_text(encoding="utf-8")
    told = info(ready={"joined": True, "opened": False, "draining": False})
    answer = await readyz(Node(info=told, verdict=judge(DEAD).to_map()), verbose=True, may_see=yes)
    assert re.search(r"\?verbose'\n(.*?)```", page, re.DOTALL)[1] == answer.body.decode()
    answer = await healthz(Node(info=info(), databases=[entry("geo", "v2", v1="RETIRING", v2="ACTIVE")]))
    assert re.search(r"```json\n(.*?)```", page, re.DOTALL)[1] == answer.body.decode()
