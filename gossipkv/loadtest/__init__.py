"""Puts a server under load and checks every answer: closed loop, open loop at a given rate, latency histogram."""
