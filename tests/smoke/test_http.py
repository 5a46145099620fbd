"""A real node's gateway."""

from __future__ import annotations

import os
import re
import signal

from tests.ci.cluster import test_http
from tests.ci.cluster.test_http import gateways, get, node_with_http

source = test_http.source


def test_the_node_outlives_its_gateway(tmp_path, source):
    """The node logs a killed gateway and starts another, and no connection is refused meanwhile."""
    with node_with_http(tmp_path, source) as (node, address):
        for count in (2, 3):
            os.kill(gateways(node, count - 1)[-1][1], signal.SIGKILL)
            assert get(address, "/geo/paris")[2] == b"France"
            told = gateways(node, count)
            assert {where for where, _ in told} == {address}
        assert len({process for _, process in told}) == 3
        ended = [line for line in node.said().splitlines() if "http_ended" in line]
        assert [re.search(r"again_ms=(\d+)", line)[1] for line in ended] == ["100", "200"]
        assert all("was killed by signal 9" in line for line in ended)
        assert node.stop() == 0
