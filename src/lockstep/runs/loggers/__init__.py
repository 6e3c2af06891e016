"""The loggers of a run: each is one of Lightning's, and rank 0 writes."""

from argparse import Namespace
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.utilities import rank_zero_only

from lockstep.base.config_error import require
from lockstep.plan import schemas
from lockstep.plan.plan import Plan
from lockstep.plan.run_label import FOLDER, UNNAMED, HyperParameter, folder_of, plain_hparam
from lockstep.plan.schemas.groups import is_below, leaves
from lockstep.plan.schemas.target import KEY, PARTIAL, SPECIAL
from lockstep.plan.targets import locate

GROUPED = {"lr": "train/lr", "samples_per_second": "work/samples_per_second"}
"""The names in TensorBoard of values without a group."""
FIRST = "monitored"  # TensorBoard sorts groups and opens the first two


class TensorBoard(TensorBoardLogger):
    """Curves and pictures for TensorBoard.

    Hyper-parameters are written at the first flush: a module has added those that the plan does not have by then.
    TensorBoard itself lists those that differ among runs first, with the last point of each curve.

    monitor: the metric of best.ckpt. Its curves of val and train are shown once more in the first group.
    """

    monitor = ""

    def __init__(
        self, folder: Path, hparams: Mapping[str, HyperParameter], resumed_at: int | None = None, images: bool = True
    ) -> None:
        """Write events to a folder. `resumed_at`: the step after which points of an earlier file are hidden.

        images: whether the engine adds the confusion matrix and the worst samples of validations.
        """
        purge_step = None if resumed_at is None else resumed_at + 1
        super().__init__(folder.parent, "", folder.name, purge_step=purge_step, flush_secs=1)
        self.options, self.has_session = dict(hparams), False

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        values = {GROUPED.get(name, name): value for name, value in metrics.items() if name != "epoch"}
        tested = {name: value for name, value in values.items() if name.startswith("test")}
        shown = {self.monitor, self.monitor.replace("val", "train", 1)} & {*values}
        super().log_metrics(tested, 0)  # one point would be drawn as nothing, two are a level line
        super().log_metrics(values | {f"{FIRST}/{name}": values[name] for name in shown}, step)

    def log_best(self, best: float, step: int) -> None:
        """Add a point to the curve of the best value until now, by which sweeps are ranked."""
        super().log_metrics({f"{FIRST}/{self.monitor}_best": best}, step)

    def log_hyperparams(self, params: Any, *_args: Any, **_options: Any) -> None:
        params = vars(params) if isinstance(params, Namespace) else params
        for key, value in leaves(params, of_lists=False):
            plain, known = plain_hparam(value), [self.options.get(f"{group}.{key}") for group in ("model", "data")]
            if key not in locate.FROM_DATA and plain not in known:
                self.options[key] = plain

    def save(self) -> None:
        if self.options and not self.has_session:
            self.has_session = True
            self._add_session(1)
        self.experiment.flush()

    def _add_session(self, place: int) -> None:
        """Write the hyper-parameters (1) or the successful end of the run (2).

        Without the list of names that SummaryWriter.add_hparams writes: TensorBoard would take that of one run for all.
        """
        from torch.utils.tensorboard.summary import hparams  # imports tensorboard

        self.experiment.file_writer.add_summary(hparams({**self.options}, {})[place])  # type: ignore[no-untyped-call]

    def finalize(self, status: str) -> None:
        """Save: a Trainer calls it after fit and after a test."""
        self.save()

    def close(self, status: str) -> None:
        self.save()
        if self.has_session and status == "success":
            self._add_session(2)
        self.experiment.close()


class Loggers(list[Any]):
    """All loggers of a run."""

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to each curve, at an optimizer step."""
        for logger in self:
            logger.log_metrics({**values}, step)

    @property
    def board(self) -> TensorBoard | None:
        """Return the logger that also takes images; None above rank 0."""
        return next((logger for logger in self if isinstance(logger, TensorBoard)), None)

    def flush(self) -> None:
        """Write what has been logged to the disk, before a checkpoint that counts it."""
        for logger in self:
            logger.save()

    def close(self, status: str = "success") -> None:
        for logger in self:
            (logger.close if isinstance(logger, TensorBoard) else logger.finalize)(status)
            if type(logger).__name__ == "WandbLogger":  # `finalize` leaves its run and its process for the next stage
                logger.experiment.finish(exit_code=int(status == "failed"))


def hparams_of(plan: Plan) -> dict[str, HyperParameter]:
    """Return the options by the keys of the command line, and not what follows from them (world size, backend)."""
    options = {key: value for key, value in plan.options.items() if key.rpartition(".")[2] not in SPECIAL}
    return {key: plain_hparam(value) for key, value in options.items() if not is_below(key, UNNAMED)}


def check_logger(choice: schemas.Logger) -> None:
    """Check a target without calling it. Raises ConfigError, as it does if the package of a tracker is missing."""
    package = {"WandbLogger": "wandb", "MLFlowLogger": "mlflow"}.get(choice.name)
    is_there = package is None or find_spec(package) is not None
    require(
        is_there, "logger", package, f"it needs the package {package}", f"pip install {package}, or logger=tensorboard"
    )
    target = locate.check(choice.key, {**choice.call, PARTIAL: choice.is_board}, {"save_dir": None})
    if isinstance(target, type):
        _require_logger(choice, target)


def _require_logger(choice: schemas.Logger, kind: type) -> None:
    reason = f"{kind.__name__} is not a Logger of Lightning"
    fits = issubclass(kind, Logger)
    require(fits, f"{choice.key}.{KEY}", choice.call[KEY], reason, "the path of a Lightning logger")


def create_loggers(plan: Plan, rank: int, steps: int) -> Loggers:
    """Create the loggers of a plan whose training begins after `steps` steps; above rank 0 they write nothing."""
    rank_zero_only.rank = rank  # type: ignore[attr-defined]  # the fork server has imported Lightning before any rank
    loggers = Loggers()
    for choice in plan.logger:
        if rank > 0:
            loggers.append(TensorBoardLogger(plan.run_dir, FOLDER, "") if choice.is_board else DummyLogger())
        elif choice.is_board:
            board = locate.create(choice.key, {**choice.call, PARTIAL: True})
            loggers.append(board(folder_of(plan), hparams_of(plan), steps if plan.resume else None))
        else:
            loggers.append(locate.create(choice.key, choice.call, {"save_dir": plan.run_dir}))
            _require_logger(choice, type(loggers[-1]))
            loggers[-1].log_hyperparams(hparams_of(plan))
    return loggers
