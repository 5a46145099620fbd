"""The status page of a cluster, rendered on the server from the nodes' reports, and refreshed in place.

Read in this order:

    survey.py         the questions to the node
    history.py        the node's counters of the last minutes
    chart.py          their lines
    placement_map.py  the nodes of each partition, one letter per cell
    drawing.py        letters as shapes
    listing.py        tables of databases and members
    view.py           the input of the templates
    rendering.py      templates to bytes; the style, the script and the icon, and the headers of every page
    pages.py          a request for a page and its answer; the sampler
    templates/        the templates
    static/           style, script and icon
"""
