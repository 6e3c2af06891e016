"""Facts about user code, which is inspected before any rank starts."""

from dataclasses import dataclass, field
from typing import Literal

from lockstep.schemas.data import DataFacts, LoaderDefaults


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a LightningModule. manual: whether it steps its optimizers itself."""

    manual: bool


@dataclass(frozen=True)
class TaskFacts:
    """Facts about a task. better: for each metric, whether smaller or larger values are better."""

    better: dict[str, Literal["min", "max"]]
    monitor: str


@dataclass
class CodeFacts:
    """Facts about the user code of a plan.

    model: None for a plain net.
    in_loaders: whether the data is a LightningDataModule or IterableDatasets; streams: whether it is the latter.
    plateau: whether the scheduler steps by a metric.
    optimizer_classes: names of the optimizer's class and its base classes.
    """

    model: ModelFacts | None = None
    data: DataFacts | None = None
    loader: LoaderDefaults = field(default_factory=LoaderDefaults)
    in_loaders: bool = False
    streams: bool = False
    task: TaskFacts | None = None
    plateau: bool = False
    optimizer_classes: tuple[str, ...] = ()
