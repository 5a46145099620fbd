"""Histories of one register, drawn: some that a register went through, some that nobody did."""

from __future__ import annotations

from tests.world.register.linearizable import Append, Done, Operation, Read, Refused, Swap

STATES = ((), (1,), (2,), (1, 2))


def draw_call(chance, number):
    """A call; states come back and numbers are used again, so that orders are hard to tell apart."""
    match chance.randrange(3):
        case 0:
            return Read()
        case 1:
            return Append(chance.choice((1, 2, number)))
        case _:
            return Swap(chance.choice(STATES), chance.choice(STATES))


def perform(call, state):
    """The state after a call, and what a register says."""
    match call:
        case Read():
            return state, Done(state)
        case Append(item):
            return (*state, item), Done((*state, item))
        case Swap(expected, wanted):
            return (wanted, Done(wanted)) if state == expected else (state, Refused(state))


def draw_telling_call(chance, number, state):
    """A call of clients that use no number twice, so that what is read tells who wrote it."""
    return chance.choice((Read(), Append(number), Swap(state, (number,)), Swap((number,), ())))


def draw_correct(chance, most, overlap=20, least=1, *, is_telling=False):
    """What clients of a right register see, in the order in which it happened."""
    state, history = (), []
    for number in range(chance.randint(least, most)):
        at = 10 * number + 100
        call = draw_telling_call(chance, number, state) if is_telling else draw_call(chance, number + 3)
        invoked, completed = at - chance.randint(0, overlap), at + chance.randint(0, overlap)
        what = chance.randrange(10)
        if what == 0:  # Unknown, and it never happened.
            history.append(Operation(call, invoked))
            continue
        if what == 1:
            history.append(Operation(call, invoked, completed, Refused(None)))
            continue
        state, outcome = perform(call, state)
        if what == 2:
            history.append(Operation(call, invoked))
        elif what == 3 and isinstance(outcome, Done):
            history.append(Operation(call, invoked, completed, Done(None)))
        else:
            history.append(Operation(call, invoked, completed, outcome))
    return history


def tamper(chance, history):
    """The same with something said or done otherwise at one place."""
    place = chance.randrange(len(history))
    one = history[place]
    state = chance.choice(STATES)
    changed = chance.choice(
        (
            one._replace(outcome=Done(state), completed_us=one.invoked_us + 20),
            one._replace(outcome=Refused(state), completed_us=one.invoked_us + 20),
            one._replace(outcome=Refused(None), completed_us=one.invoked_us + 20),
            one._replace(call=draw_call(chance, 9)),
            one._replace(invoked_us=one.invoked_us + 60, completed_us=one.completed_us + 60),
        )
    )
    return [*history[:place], changed, *history[place + 1 :]]
