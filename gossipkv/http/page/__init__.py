"""The status page of a cluster, rendered on the server from the nodes' reports, and refreshed in place.

Read in this order:

    pages.py          a request for a page and its answer; the sampler
    survey.py         the questions to the node
    history.py        the node's counters of the last minutes; chart.py: their lines
    placement_map.py  the nodes of each partition, one letter per cell; drawing.py: letters as shapes
    view.py           the input of the templates; listing.py: its tables
    rendering.py      templates to bytes; the style, the script and the icon, and the headers of every page
"""
