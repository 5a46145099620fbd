"""The reasons to wait: a table that maps each kind of relay to the module with its steps.

A new reason needs a new module beside these, a kind in `relays.pxd`, and a line here.
"""


cdef void set_wait_reasons(RelayDriver driver) noexcept nogil:
    set_wait_reason(driver, READ, owner_reason())
    set_wait_reason(driver, WAITING_READ, disk_reason())
    set_wait_reason(driver, BATCH, parts_reason())
    set_wait_reason(driver, PART, key_owner_reason())
    set_wait_reason(driver, PEER_REQUEST, reply_reason())
    set_wait_reason(driver, REPLIED, reply_reason())  # The reply waits for Python to take it.
