"""MessagePack-RPC: frames are bounded by a scanner before anything is decoded, then decoded per method.

Read in this order:

    frames.py       a stream cut into whole values that keep every limit
    rpc.py          what is inside a frame: requests, responses, notifications
    arguments.py    what a request was given, taken in order, each with one clear error
    json_form.py    its values as JSON has them
    latency.py      a histogram of durations, of fixed size, that nodes and clients add up
"""
