"""An engine for tests: the raw engine, on ranks of which one goes wrong as faults.py says."""

import lockstep.raw

from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from tests.fault_injection.faults import arm


def run(plan: Plan, context: RankContext) -> Metrics:
    arm(context)
    return lockstep.raw.run(plan, context)
