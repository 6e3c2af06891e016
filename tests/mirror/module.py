"""What a LightningModule sees while it is trained: `self.trainer`, and `self.log` over all ranks and samples."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from lockstep.targets.locate import locate, parameters_of

FROM_DATA = ("sample_shape", "num_classes", "num_outputs")
JOIN: dict[str, Callable[[Any], Any]] = {"mean": sum, "sum": sum, "min": min, "max": max}
COUNTS = ("tp", "fp", "tn", "fn")


def gathered(value: Any) -> list[Any]:
    """Return the values of all ranks, on every rank."""
    if not dist.is_initialized():
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def joined(how: str, pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the total and the weight of several; those of weight 0 do not count."""
    totals = [total for total, weight in pairs if weight]
    return (JOIN[how](totals) if totals else 0.0), sum(weight for _, weight in pairs)


def value_of(how: str, pairs: Sequence[tuple[float, float]]) -> float | None:
    total, weight = joined(how, pairs)
    return None if not weight else total / weight if how == "mean" else total


@dataclass
class Logged:
    """What is logged under one name in one stage: totals of values times weights, and the weights.

    batch: of the current batch. shown: of the current batch over all ranks, if it was logged with `sync_dist`.
    """

    name: str
    how: str
    on_step: bool
    on_epoch: bool
    metric: Any = None
    epoch: tuple[float, float] = (0.0, 0.0)
    batch: tuple[float, float] | None = None
    sync: bool = False
    shown: float = 0.0

    def forked(self, kind: str) -> str:
        """Return the name of its values of a step or an epoch; if there are both, they get an ending."""
        name, separator, index = self.name.partition("/dataloader_idx_")
        return f"{name}_{kind}{separator}{index}" if self.on_step and self.on_epoch else self.name


class Log:
    """`self.log` of a module: means are weighted by samples, over the batches and the ranks of an epoch.

    samples: of this rank in the batch; None between batches. suffix: names the loader, if there are several.
    """

    def __init__(self, module: nn.Module, rank: int, keeps: bool = True) -> None:
        self.module, self.rank, self.keeps = module, rank, keeps
        self.stages: dict[str, dict[str, Logged]] = {}
        self.stage, self.suffix, self.samples = "train", "", None
        self.epoch_samples: dict[str, int] = {}
        self.always_synced: set[str] = set()

    samples: int | None

    def begin_stage(self, stage: str) -> None:
        self.stage, self.suffix, self.samples, self.epoch_samples[stage] = stage, "", None, 0

    def begin_batch(self, stage: str, samples: int, suffix: str = "") -> None:
        self.stage, self.suffix, self.samples = stage, suffix, samples
        self.epoch_samples[stage] += samples
        for entry in self.entries.values():
            entry.batch = None

    def end_batch(self, stage: str) -> None:
        self.stage, self.suffix, self.samples = stage, "", None

    @property
    def entries(self) -> dict[str, Logged]:
        return self.stages.setdefault(self.stage, {})

    def log_dict(self, values: Any, *arguments: Any, **options: Any) -> None:
        is_collection = isinstance(values, MetricCollection)
        for name, value in values.items(keep_base=False, copy_state=False) if is_collection else values.items():
            self.log(name, value, *arguments, **options)

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: float | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        in_batch = self.samples is not None
        trains = self.stage == "train" and in_batch
        on_step = trains if on_step is None else on_step and in_batch
        on_epoch = not on_step or (not trains if on_epoch is None else on_epoch)
        name = name + self.suffix if add_dataloader_idx else name
        how = str(getattr(reduce_fx, "__name__", reduce_fx)).lower().replace("avg", "mean")
        entry = self.entries.setdefault(name, Logged(name, how, on_step, on_epoch))
        weight = float(self.epoch_samples.get(self.stage, 0) or 1)  # between batches: it is of the epoch
        if self.samples is not None:
            weight = float(self.samples if batch_size is None else batch_size) if self.samples else 0.0
        weight = 0.0 if rank_zero_only and self.rank else weight
        if isinstance(value, Metric):
            entry.metric = value
            forward = getattr(value, "_forward_cache", None)
            if not on_step or not isinstance(forward, Tensor):
                return
            number, weight = forward.detach().double().mean().item(), float(self.samples or 0)
        else:
            number = float(value.item() if isinstance(value, Tensor) else value)
        pair = (number * weight if how == "mean" else number, weight)
        if on_step:
            entry.batch, entry.shown = pair, number
            entry.sync = entry.metric is None and (sync_dist or name in self.always_synced)
        if entry.on_epoch and entry.metric is None:
            entry.epoch = joined(how, [entry.epoch, pair])

    def step_values(self) -> dict[str, Logged]:
        """Return what the batch has logged for itself, over all ranks where it was logged with `sync_dist`."""
        values = {name: entry for name, entry in self.entries.items() if entry.batch is not None}
        if synced := [entry for entry in sorted(values.values(), key=lambda each: each.name) if entry.sync]:
            for entry, pairs in zip(synced, zip(*gathered([each.batch for each in synced]), strict=True), strict=True):
                entry.shown = value_of(entry.how, pairs) or 0.0
        return values

    def of_epoch(self, stage: str, ends: bool) -> dict[str, tuple[float, Logged]]:
        """Return each value of a stage over all ranks, by its name; reset them if the stage `ends`."""
        metrics = {name: child for name, child in self.module.named_modules() if isinstance(child, Metric)}
        names = {id(metric): name for name, metric in metrics.items()}
        entries = self.stages.setdefault(stage, {})
        totals: dict[str, list[Any]] = {}
        mine = [(vars(each) | {"metric": names.get(id(each.metric))}) for each in entries.values() if self.keeps]
        for of_rank in gathered(mine):  # a rank without samples has logged nothing
            for values in of_rank:
                entry = entries.setdefault(values["name"], Logged(**values | {"metric": None, "epoch": (0.0, 0.0)}))
                entry.metric = entry.metric or metrics.get(values["metric"])
                totals.setdefault(entry.name, []).append(values["epoch"])
        results = {}
        for name in sorted(totals):
            entry = entries[name]
            if entry.metric is not None and entry.on_epoch:
                for count in COUNTS:  # float64 has them exactly; torchmetrics divides in float32
                    if isinstance(state := getattr(entry.metric, count, None), Tensor):
                        setattr(entry.metric, count, state.double())
                results[entry.forked("epoch")] = float(entry.metric.compute()), entry
            elif entry.metric is None and (value := value_of(entry.how, totals[name])) is not None:
                results[entry.forked("epoch")] = float(value), entry
        for entry in entries.values() if ends else ():
            if entry.metric is not None:
                entry.metric.reset()
            entry.metric, entry.epoch = None, (0.0, 0.0)
        return results


def widen(module: nn.Module) -> None:
    """Convert floating states of torchmetrics to float64; `Metric.to` ignores dtypes."""
    for metric in module.modules():
        for name, state in metric.metric_state.items() if isinstance(metric, Metric) else ():
            if isinstance(state, Tensor) and state.is_floating_point():
                setattr(metric, name, state.double())


def trainer_of(run: Any) -> Any:
    """Return what stands for a Trainer, with its public names."""
    config, rank, world = run.config, run.rank, run.world
    options = {name: config.trainer[name] for name in ("max_steps", "check_val_every_n_epoch", "num_sanity_val_steps")}
    names = ("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "log_every_n_steps", "precision")
    options |= {name: config[name] for name in names}
    return SimpleNamespace(
        **options,
        **dict.fromkeys(("training", "validating", "testing", "sanity_checking", "should_stop"), False),
        **{"world_size": world, "num_devices": config.devices, "num_nodes": config.num_nodes},
        **{"global_rank": rank, "local_rank": run.local_rank, "is_global_zero": rank == 0, "node_rank": 0},
        **{"is_last_batch": False, "current_epoch": 0, "global_step": 0, "barebones": config.trainer.barebones},
        **{"optimizers": [], "lr_scheduler_configs": [], "callbacks": [], "loggers": [], "logger": None},
        **{"callback_metrics": {}, "logged_metrics": {}, "progress_bar_metrics": {}},
        gradient_clip_algorithm=config.trainer.gradient_clip_algorithm if config.gradient_clip_val else None,
        default_root_dir=run.folder,
        log_dir=run.folder,
        state=SimpleNamespace(fn="fit", stage=None, status="running"),
        print=lambda *values, **options: print(*values, **options) if rank == 0 else None,
    )


def attach(module: Any, log: Log) -> None:
    """Give the log to a LightningModule and to those within it."""
    for child in module.modules():
        if hasattr(child, "automatic_optimization"):
            object.__setattr__(child, "log", log.log if log.keeps else lambda *_, **__: None)
            object.__setattr__(child, "log_dict", log.log_dict if log.keeps else lambda *_, **__: None)


@contextmanager
def preserved_metrics(module: nn.Module) -> Iterator[None]:
    """Restore the torchmetrics of a module afterwards."""
    kept = (Tensor, list, int, bool, float, type(None))
    metrics = [each for each in module.modules() if isinstance(each, Metric)]
    states = [
        {name: deepcopy(value) for name, value in vars(each).items() if isinstance(value, kept)} for each in metrics
    ]
    yield
    for metric, state in zip(metrics, states, strict=True):
        vars(metric).update(state)


def filled(call: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """Return a call with what the data knows of itself, for parameters of these names that are not given."""
    known = {name: getattr(data, name, None) for name in FROM_DATA}
    known["num_outputs"] = known["num_outputs"] or known["num_classes"]
    takes = parameters_of(locate("model", call["_target_"]))
    values = {
        name: [*value] if isinstance(value, tuple) else value for name, value in known.items() if value is not None
    }
    return {**call, **{name: value for name, value in values.items() if name in takes and name not in call}}


def configured(returned: Any) -> tuple[list[Any], list[Any]]:
    """Return the optimizers and schedules that configure_optimizers returns, in any form that Lightning takes."""
    entries = [*returned] if isinstance(returned, list | tuple) else [] if returned is None else [returned]
    schedules: list[Any] = []
    if len(entries) == 2 and isinstance(entries[0], list | tuple):
        schedules = [*entries[1]] if isinstance(entries[1], list | tuple) else [entries[1]]
        entries = [*entries[0]]
    optimizers = []
    for entry in entries:
        optimizers.append(entry["optimizer"] if isinstance(entry, Mapping) else entry)
        if isinstance(entry, Mapping) and "lr_scheduler" in entry:
            given = entry["lr_scheduler"]
            schedules.append(
                given if isinstance(given, Mapping) else {"scheduler": given, "monitor": entry.get("monitor")}
            )
    default = {"interval": "epoch", "frequency": 1, "monitor": None, "name": None, "strict": True}
    configs = []
    for schedule in schedules:
        options = {**default, **(schedule if isinstance(schedule, Mapping) else {"scheduler": schedule})}
        plateau = isinstance(options["scheduler"], torch.optim.lr_scheduler.ReduceLROnPlateau)
        configs.append(SimpleNamespace(**{"reduce_on_plateau": plateau, **options}))
    return optimizers or [torch.optim.SGD([torch.zeros(0)], lr=0.0)], configs


def mapped(function: Callable[[Tensor], Any], value: Any) -> Any:
    """Return a structure with a function of each tensor in it."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {name: mapped(function, part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(function, part) for part in value))
    return type(value)(mapped(function, part) for part in value) if isinstance(value, list | tuple) else value
