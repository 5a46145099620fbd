"""A client: its requests, and the session that sends them and cuts answers out of what comes."""

include "requests.pyx"
include "session.pyx"
