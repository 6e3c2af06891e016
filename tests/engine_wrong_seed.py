"""An engine for tests: the raw engine under another seed, which no comparison may let pass."""

from dataclasses import replace

import lockstep.raw

from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.run_files import Metrics


def run(plan: Plan, context: RankContext) -> Metrics:
    return lockstep.raw.run(replace(plan, seed=plan.seed + 1), context)
