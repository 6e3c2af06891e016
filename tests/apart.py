"""An engine for tests: the raw engine under another seed, which no comparison may let pass."""

from dataclasses import replace

import lockstep.raw
from lockstep.launch import Place
from lockstep.plan import Plan
from lockstep.record import Metrics


def run(plan: Plan, place: Place) -> Metrics:
    return lockstep.raw.run(replace(plan, seed=plan.seed + 1), place)
