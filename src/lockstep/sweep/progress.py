"""Which job a sweep is at, of how many, and when the last will be done."""

import math
import time
from collections.abc import Iterable
from datetime import datetime, timedelta

from omegaconf import DictConfig, OmegaConf

from lockstep.command_line.overrides import parse
from lockstep.sweep.outcome import is_basic_sweeper


class SweepProgress:
    """The progress of jobs that run one after the other in this process."""

    def __init__(self, config: DictConfig) -> None:
        self.words = [str(word) for word in OmegaConf.to_container(config.hydra.overrides.task, resolve=False) or []]
        self.n_jobs = number_of_jobs(config, self.words)
        self.began = time.monotonic()

    def begin(self, number: int, words: Iterable[str]) -> str:
        """Return the line for a job that begins, `number` counted from 0."""
        varied = " ".join(word for word in words if word not in self.words)
        counted = f" ({number + 1} of {self.n_jobs})" if self.n_jobs else ""
        line = f"job {number}{counted}" + (varied and f": {varied}")
        if not self.n_jobs or not number:
            return line
        left = timedelta(seconds=round((self.n_jobs - number) * (time.monotonic() - self.began) / number))
        return f"{line}; {left} left, done at about {datetime.now() + left:%H:%M}"


def number_of_jobs(config: DictConfig, words: Iterable[str]) -> int | None:
    """Count the combinations of the listed values, or return a sweeper's `n_trials`, if it has one."""
    sweeper = config.hydra.sweeper
    if not is_basic_sweeper(config):
        trials: int | None = sweeper.get("n_trials")
        return trials
    listed = [*words, *(f"{key}={value}" for key, value in (sweeper.get("params") or {}).items())]
    return math.prod(len([*one.sweep_iterator()]) for one in parse(listed) if one.is_sweep_override())
