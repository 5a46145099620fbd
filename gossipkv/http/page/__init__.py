"""The status page: what a cluster is doing, made on the server from what nodes tell, and refreshed in place.

Read in this order:

    pages.py          a request for a page and its answer, a defect among them; the sampler
    survey.py         what is asked of the node and of the members; links.py: the connections to members
    history.py        the node's counters of the last minutes, and what they say of each second
    chart.py          those as lines
    placement_map.py  who has which partition, a letter a cell
    drawing.py        the letters as shapes
    obstacles.py      what blocks a switch
    advice.py         what to do next
    view.py           all of that as the templates need it; listing.py: its tables
    rendering.py      templates to bytes; the style, the script and the icon, and the headers of every page
"""
