"""Methods about tables, for clients, administrators and other nodes.

Read in this order:

    dispatch.py     finds the handler of a request, and loads it when it is called first
    requests.py     arguments of requests, decoded and checked
    transact.py     a change of the catalogue or of a map, as a METADATA transaction
    admin.py        methods that create and drop tables and change acceptors
    node_admin.py   methods that add, remove and weigh nodes
    range_admin.py  methods that split ranges and change their replicas
    force_join.py   re-creates a range from one surviving replica
    quarantine.py   lists and drops quarantined replicas
    status.py       the status of tables and replicas on this node
    peer_rpc.py     methods that other nodes call
    local_calls.py  calls of methods by a task of this node
"""
