"""Which job of how many a sweep is at, and when it will be done."""

import math
import time
from collections.abc import Iterable

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from lockstep.sweep import OWN_SWEEPER


class SweepProgress:
    """Of jobs that run one after the other, in this process."""

    def __init__(self, config: DictConfig) -> None:
        self.words = [str(word) for word in OmegaConf.to_container(config.hydra.overrides.task, resolve=False) or []]
        self.jobs = number_of_jobs(config, self.words)
        self.seconds: list[float] = []
        self.since = 0.0

    def begin(self, number: int, words: Iterable[str]) -> str:
        """A job begins, `number` counted from 0: the line that says so."""
        self.since = time.perf_counter()
        own = " ".join(word for word in words if word not in self.words)
        heading = f"job {number}" + (f" ({number + 1} of {self.jobs})" if self.jobs else "")
        return ": ".join(filter(None, [heading, own])) + self._left(number)

    def end(self) -> None:
        self.seconds.append(time.perf_counter() - self.since)

    def _left(self, number: int) -> str:
        """The jobs that are left, at the mean of those that ended."""
        if not self.jobs or not self.seconds:
            return ""
        left = (self.jobs - number) * sum(self.seconds) / len(self.seconds)
        at = time.strftime("%H:%M", time.localtime(time.time() + left))
        return f"; {duration(left)} left, done at about {at}"


def number_of_jobs(config: DictConfig, words: Iterable[str]) -> int | None:
    """All combinations of the listed values, or a sweeper's `n_trials`; None where nobody knows."""
    if not str(config.hydra.sweeper._target_).endswith(OWN_SWEEPER):
        trials = OmegaConf.select(config, "hydra.sweeper.n_trials")
        return None if trials is None else int(trials)
    params = config.hydra.sweeper.get("params") or {}
    listed = [*words, *(f"{key}={value}" for key, value in params.items())]
    overrides = OverridesParser.create().parse_overrides(listed)
    return math.prod(len([*one.sweep_iterator()]) for one in overrides if one.is_sweep_override())


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
