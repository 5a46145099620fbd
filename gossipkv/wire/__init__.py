"""MessagePack-RPC: a scanner bounds each frame before anything is decoded; decoding is per method.

Read in this order:

    frames.py     cuts a stream into whole values within every limit
    opaque.py     decodes strings of MessagePack inside messages, within limits
    rpc.py        the messages in frames: requests, responses, notifications
    results.py    results of methods that are not plain values
    arguments.py  takes a request's parameters in order, each with one clear error
    json_form.py  values in JSON
    key_text.py   keys in one form for people to read and type
    http_date.py  HTTP dates
    hosts.py      hosts of HTTP requests
    latency.py    a histogram of durations, of fixed size, that nodes and clients add up
"""
