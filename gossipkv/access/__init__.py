"""Who may do what.

Read in this order:

    rights.py       what there is to be allowed, and what each method, command and path needs of it
    users.py        who has which rights, by token or by certificate: the users file; which wrong tokens wait
    certificates.py an authority of one's own, and what it signs; it alone loads `cryptography`
"""
