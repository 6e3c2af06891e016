"""An engine for tests: either of the real ones, on ranks of which one goes wrong as going_wrong.py says."""

from lockstep.launch import Place
from lockstep.plan import Plan
from lockstep.record import Metrics
from tests.going_wrong import arm
from tests.ranks import ENGINES


def run(plan: Plan, place: Place) -> Metrics:
    arm(place)
    return ENGINES[plan.engine.name](plan, place)
