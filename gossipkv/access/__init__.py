"""Who may do what.

Read in this order:

    rights.py       what there is to be allowed, and what each method, command and path needs of it
    users.py        who has which rights, by token or by certificate: the users file
    throttle.py     which wrong tokens are refused at once, and which after a pause
    certificates.py an authority of one's own, and what it signs; it alone loads `cryptography`
"""
