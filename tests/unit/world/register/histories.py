"""Random histories of one register: correct ones and impossible ones."""

from __future__ import annotations

from tests.world.register.linearizable import Append, Done, Operation, Read, Refused, Swap

STATES = ((), (1,), (2,), (1, 2))


def draw_call(chance, number):
    """Draw a call; states and numbers repeat, so that orders are hard to tell apart."""
    match chance.randrange(3):
        case 0:
            return Read()
        case 1:
            return Append(chance.choice((1, 2, number)))
        case _:
            return Swap(chance.choice(STATES), chance.choice(STATES))


def perform(call, state):
    """Return the state after a call, and the register's answer."""
    match call:
        case Read():
            return state, Done(state)
        case Append(item):
            return (*state, item), Done((*state, item))
        case Swap(expected, wanted):
            return (wanted, Done(wanted)) if state == expected else (state, Refused(state))


def draw_telling_call(chance, number, state):
    """Draw a call that uses no number twice, so that each read identifies its writer."""
    return chance.choice((Read(), Append(number), Swap(state, (number,)), Swap((number,), ())))


def draw_correct(chance, most, overlap=20, least=1, *, is_telling=False):
    """Return the operations of clients of a correct register, in the order in which they took effect."""
    state, history = (), []
    for number in range(chance.randint(least, most)):
        at = 10 * number + 100
        call = draw_telling_call(chance, number, state) if is_telling else draw_call(chance, number + 3)
        invoked, completed = at - chance.randint(0, overlap), at + chance.randint(0, overlap)
        what = chance.randrange(10)
        if what == 0:  # The outcome is unknown, and the call never took effect.
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
    """Return the history with one operation changed."""
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
