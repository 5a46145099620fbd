"""Frames: a byte stream cut into whole MessagePack values within every limit.

A frame is one MessagePack value; values follow each other without separators. Before a byte is decoded, the scanner
(`frames.pyx`) has bounded its size, depth, number of elements, and types. Node and clients use the same scanner and
limits, so each side can read every frame that the other may send.

Usage::

    reader = FrameReader()
    reader.feed(received)
    for frame in reader:            # each is `bytes`, one whole value
        ...
"""

from gossipkv.wire._wire import MAX_DEPTH, MAX_ELEMENTS, MAX_FRAME_BYTES, FrameReader, check_value, refusal

__all__ = ["MAX_DEPTH", "MAX_ELEMENTS", "MAX_FRAME_BYTES", "FrameReader", "check_value", "refusal"]
