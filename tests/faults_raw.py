"""An engine for tests: the raw engine, on ranks of which one goes wrong as going_wrong.py says.

Alone, because a command whose fork server imports both takes seconds more.
"""

import lockstep.raw
from lockstep.launch import Place
from lockstep.plan import Plan
from lockstep.record import Metrics
from tests.going_wrong import arm


def run(plan: Plan, place: Place) -> Metrics:
    arm(place)
    return lockstep.raw.run(plan, place)
