"""An engine for tests: either of the real ones, on ranks of which one goes wrong as faults.py says."""

from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from tests.fault_injection.faults import arm
from tests.rank_helpers import ENGINES


def run(plan: Plan, context: RankContext) -> Metrics:
    arm(context)
    return ENGINES[plan.engine.name](plan, context)
