"""MessagePack-RPC: a scanner bounds each frame before anything is decoded; decoding is per method.

Read in this order:

    frames.py       cuts a stream into whole values within every limit
    rpc.py          the messages in frames: requests, responses, notifications
    arguments.py    takes a request's parameters in order, each with one clear error
    json_form.py    values in JSON
    latency.py      a histogram of durations, of fixed size, that nodes and clients add up
"""
