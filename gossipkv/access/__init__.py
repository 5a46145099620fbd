"""Access control: users, their rights, and certificates.

Read in this order:

    rights.py       the rights, and those that each method, command and path needs
    users.py        the users file: rights by token or by certificate; throttling of wrong tokens
    certificates.py a private authority, and the certificates it signs; only this module loads `cryptography`
"""
