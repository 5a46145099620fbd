"""HTTP in Sequins' form, in front of nodes: a client of the wire that knows nothing of what a node is made of.

Read in this order:

    answers.py      a request, an answer, whom answers ask
    page/           the page that people look at
"""
