"""Bugs planted in what a node tells its supervisor."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

SUPERVISOR = "gossipkv.processes.supervisor:Supervisor"
TOLD = "tests/unit/processes/test_supervisor.py"
PUMP = "tests/unit/serving/test_pump.py"

MUTANTS_OF_THE_SUPERVISOR: tuple[Mutant, ...] = (
    planted(
        "a round is said to have passed without one",
        "gossipkv.serving.pump:Pump.pass_round",
        "await self._passed.wait()",
        "await trio.lowlevel.checkpoint()",
        PUMP,
    ),
    planted(
        "children inherit the supervisor",
        f"{SUPERVISOR}.take",
        'address, watchdog, process = (environ.pop(name, "") for name in _NAMES)',
        'address, watchdog, process = (environ.get(name, "") for name in _NAMES)',
        TOLD,
    ),
    planted(
        "another's watchdog is taken for this one's",
        f"{SUPERVISOR}.take",
        'if not watchdog or process not in {"", str(os.getpid())}:',
        "if not watchdog:",
        TOLD,
    ),
    planted(
        "that it is ready is lost where the queue was full",
        f"{SUPERVISOR}.lives",
        "if self.watches or self._owed or status != self._status:",
        "if self.watches or status != self._status:",
        TOLD,
    ),
)
