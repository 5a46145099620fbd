"""Serving: the loop, its connections, and the dialects' requests and answers.

The folders, in reading order (`transport/` and most of `tls/` belong to `_transport.pyx`):

    loop/        the order of a round; the core, its lock, and the limits that the loops of a node share
    connection/  the state and the buffers of each connection, its reply queue, time-outs and counters
    request/     received bytes, to messages, to answers or to hand-offs to Python
    published/   the published table: lookups, batches of keys, pages that are not in memory
    scan/        plans, pages and turns of scans
    peer/        other nodes: holders, connections, requests to them, and the requests that wait
    forward/     gets and batches that other nodes answer
    resp/        the dialect of Redis
    http/        the dialect of HTTP/1.1
    tls/         certificates, handshakes, tunnels to the gateway
    transport/   the interface to sockets and clock, and Linux behind it
"""

include "loop/core_lock.pyx"
include "request/backlog.pyx"
include "loop/busy_poll.pyx"
include "loop/loop_group.pyx"
include "connection/reply_queue.pyx"
include "resp/answers.pyx"
include "resp/session.pyx"
include "published/table.pyx"
include "http/answers.pyx"
include "http/requests.pyx"
include "peer/relays.pyx"
include "peer/routes.pyx"
include "published/cold_pages.pyx"
include "scan/page.pyx"
include "scan/plan.pyx"
include "scan/merge.pyx"
include "published/batches.pyx"
include "published/table_gets.pyx"
include "scan/table_pages.pyx"
include "scan/scans.pyx"
include "connection/connections.pyx"
include "peer/peers.pyx"
include "peer/relay_driver.pyx"
include "published/cold_gets.pyx"
include "forward/report.pyx"
include "forward/get.pyx"
include "forward/parts.pyx"
include "forward/batch.pyx"
include "peer/requests.pyx"
include "peer/wait_reasons.pyx"
include "peer/answers.pyx"
include "loop/core.pyx"
include "request/handoff.pyx"
include "request/gathered_writes.pyx"
include "request/requests.pyx"
include "http/intake.pyx"
include "resp/commands.pyx"
include "resp/reads.pyx"
include "resp/intake.pyx"
include "request/intake.pyx"
include "connection/timeouts.pyx"
include "loop/loop.pyx"
include "tls/handshakes.pyx"
