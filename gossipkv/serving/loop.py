"""The serving loop for Python: its core made from settings, the loop, and the transport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.serving._serving import Caller, Core, GatheredWrites, Loop, LoopGroup, ProvenResult, Refusal
from gossipkv.serving._transport import Sockets, Tls, TlsClient, TlsEnd

if TYPE_CHECKING:
    from gossipkv.settings.config import Config

__all__ = ["Caller", "Core", "GatheredWrites", "Loop", "LoopGroup", "ProvenResult", "Refusal"]
__all__ += ["Sockets", "Tls", "TlsClient", "TlsEnd", "make_core", "make_loop_group"]


def make_loop_group(config: Config, size: int) -> LoopGroup:
    """Make the group of `size` serving loops, with the limits that all loops share."""
    return LoopGroup(
        size,
        max_connections=config.max_connections,
        max_of_address=config.connections_per_address,
        max_in_flight=config.max_in_flight_total,
        max_held=config.max_queued_total,
    )


def make_core(config: Config, *, seed: int, node: str, group: LoopGroup, pump: int) -> Core:
    """Make the core of serving loop `pump` of the named node, with the limits from the settings.

    `seed` determines the order in which other nodes are asked.
    """
    return Core(
        max_frame=config.max_frame,
        max_depth=config.max_depth,
        max_elements=config.max_elements,
        max_key=config.max_key,
        max_value=config.max_value,
        max_in_flight=config.max_in_flight,
        max_queued=config.max_queued,
        frame_timeout_ms=config.frame_timeout,
        output_timeout_ms=config.output_timeout,
        idle_timeout_ms=config.idle_timeout,
        scan_limit=config.scan_limit,
        proxy_timeout_ms=config.proxy_timeout,
        proxy_stage_timeout_ms=config.stage_timeout,
        seed=seed,
        node=node,
        group=group,
        pump=pump,
        resp_databases=config.resp_databases,
        hosts=config.expected_hosts,
    )
