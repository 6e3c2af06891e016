"""An independent judge: the same training in plain torch.distributed, from the words of docs/agreement.md.

It shares no line that decides a number with the engines. To be
read from top to bottom: `run` (a run on one rank), `step` (a batch on one rank), then what these call: `data` (this
rank's share of each batch), `module` (what a LightningModule sees as its trainer), `log` (`self.log` over all ranks and
samples), `record` (what the run leaves).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.world import World


@dataclass(frozen=True)
class Job:
    """What a rank knows of a run.

    config: the composed configuration, as YAML.
    metadata: what identifies the run among others, for its record and metrics.json.
    plan: the plan as JSON, for the checkpoint at the end, which `lockstep.load` reads.
    """

    world: World
    config: str
    metadata: Mapping[str, Any]
    plan: str

    saves = True
