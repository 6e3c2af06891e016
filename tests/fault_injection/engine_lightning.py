"""An engine for tests: the Lightning engine, on ranks of which one goes wrong as faults.py says."""

import lockstep.engine
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.run_files import Metrics
from tests.fault_injection.faults import arm


def run(plan: Plan, context: RankContext) -> Metrics:
    arm(context)
    return lockstep.engine.run(plan, context)
