"""Frames: a byte stream cut into whole MessagePack values that keep every limit.

A frame is one MessagePack value; values stand back to back and nothing separates them, so what follows a value is
the next one.  Before a byte is decoded, the scanner (`_frames`) has bounded its size, its depth, the number of its
elements and its types.  Node and clients use the same scanner with the same limits, so what one side may send the
other can read.

Usage::

    reader = FrameReader()
    reader.feed(received)
    for frame in reader:            # each is `bytes`, one whole value
        ...
"""

from gossipkv.wire._wire import MAX_DEPTH, MAX_ELEMENTS, MAX_FRAME_BYTES, FrameReader, refusal

__all__ = ["MAX_DEPTH", "MAX_ELEMENTS", "MAX_FRAME_BYTES", "FrameReader", "refusal"]
