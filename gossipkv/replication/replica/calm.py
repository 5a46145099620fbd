"""Calm replicas and their tables, as the serving loops read them; `calm.pyx` explains the design."""

from __future__ import annotations

from gossipkv.replication._replication import MAX_CALM_HOSTS as MAX_HOSTS
from gossipkv.replication._replication import CalmReplica, CalmTable

__all__ = ["MAX_HOSTS", "CalmReplica", "CalmTable"]
