"""What a request may wait for: the table of reasons, each with the file that knows all about it.

A new reason is a new file beside these, a kind in `relays.pxd`, and a line here.
"""


cdef void know_reasons(Asking asking) noexcept nogil:
    """Have requests wait for these."""
    know_reason(asking, READ, waiting_for_an_owner())
    know_reason(asking, WAITING_READ, waiting_for_the_disk())
    know_reason(asking, BATCH, waiting_for_its_parts())
    know_reason(asking, PART, waiting_for_an_owner_of_keys())
    know_reason(asking, QUESTION, waiting_for_a_reply())
    know_reason(asking, REPLIED, waiting_for_a_reply())  # Until Python takes it.
