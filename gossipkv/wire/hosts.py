"""The judgement of a request's `Host`, which gateways share with the serving loop (`_text.pxd`)."""

from gossipkv.wire._wire import is_expected_host

__all__ = ["is_expected_host"]
