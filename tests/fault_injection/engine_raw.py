"""An engine for tests: the raw engine, on ranks of which one goes wrong as faults.py says."""

from typing import Any

import lockstep.raw.run
from lockstep.launch.topology import RankContext
from lockstep.raw import Job
from tests.fault_injection.faults import arm


def run(job: Job, context: RankContext) -> dict[str, Any]:
    arm(context)
    return lockstep.raw.run.run(job, context)
