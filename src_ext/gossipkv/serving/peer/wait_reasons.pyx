"""The reasons to wait: a table that maps each kind of relay to the module with its steps.

A new reason needs a new module beside these, a kind in `relays.pxd`, and a line here.
"""


cdef void know_reasons(Asking asking) noexcept nogil:
    know_reason(asking, READ, waiting_for_an_owner())
    know_reason(asking, WAITING_READ, waiting_for_the_disk())
    know_reason(asking, BATCH, waiting_for_its_parts())
    know_reason(asking, PART, waiting_for_an_owner_of_keys())
    know_reason(asking, QUESTION, waiting_for_a_reply())
    know_reason(asking, REPLIED, waiting_for_a_reply())  # The reply waits for Python to take it.
