"""The client: its requests, and the session that sends them and parses the answers."""

include "arrow.pyx"
include "requests.pyx"
include "session.pyx"
