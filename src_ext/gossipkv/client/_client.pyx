"""The client: its requests, and the session that sends them and parses the answers."""

include "requests.pyx"
include "session.pyx"
