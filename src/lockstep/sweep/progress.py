"""Which job of how many a sweep is at, and when it will be done."""

import math
import time
from collections.abc import Iterable
from datetime import datetime, timedelta

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from lockstep.sweep import OWN_SWEEPER


class SweepProgress:
    """The progress of jobs that run one after the other, in this process."""

    def __init__(self, config: DictConfig) -> None:
        self.words = [str(word) for word in OmegaConf.to_container(config.hydra.overrides.task, resolve=False) or []]
        self.jobs = number_of_jobs(config, self.words)
        self.began = time.monotonic()

    def begin(self, number: int, words: Iterable[str]) -> str:
        """Return the line that says which job begins, `number` counted from 0, and when the last will be done."""
        varied = " ".join(word for word in words if word not in self.words)
        line = f"job {number}" + (f" ({number + 1} of {self.jobs})" if self.jobs else "") + (varied and f": {varied}")
        if not self.jobs or not number:
            return line
        left = timedelta(seconds=round((self.jobs - number) * (time.monotonic() - self.began) / number))
        return f"{line}; {left} left, done at about {datetime.now() + left:%H:%M}"


def number_of_jobs(config: DictConfig, words: Iterable[str]) -> int | None:
    """Count the combinations of the listed values, or return a sweeper's `n_trials`, if it has one."""
    if not str(config.hydra.sweeper._target_).endswith(OWN_SWEEPER):
        trials = OmegaConf.select(config, "hydra.sweeper.n_trials")
        return None if trials is None else int(trials)
    params = config.hydra.sweeper.get("params") or {}
    listed = [*words, *(f"{key}={value}" for key, value in params.items())]
    overrides = OverridesParser.create().parse_overrides(listed)
    return math.prod(len([*one.sweep_iterator()]) for one in overrides if one.is_sweep_override())
