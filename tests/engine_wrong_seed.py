"""An engine for tests: the raw engine under another seed, which no comparison may let pass."""

from dataclasses import replace
from typing import Any

import lockstep.raw.run
from lockstep.launch.topology import RankContext
from lockstep.raw import Job


def run(job: Job, context: RankContext) -> dict[str, Any]:
    config, metadata = job.config.replace("\nseed: 42", "\nseed: 43"), {**job.metadata, "seed": 43}
    return lockstep.raw.run.run(replace(job, config=config, metadata=metadata), context)
