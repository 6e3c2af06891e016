"""`python -m bench.layouts`: what each rank stores and sends under a strategy, and how long a pipeline's parts wait."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from bench.traffic import expected_traffic
from lockstep import engine
from lockstep.base.text_table import columns_text, figures
from lockstep.command.build import plan_from
from lockstep.command.compose import compose_job
from lockstep.command.entry_point import options, run_command
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.strategies.parallel.pipeline import PartOfPipeline
from lockstep.strategies.parallel.tensor_layout import local_shard, parameters_of

HELP = """Measure what each rank stores and sends under each strategy, and how long the parts of a pipeline wait:
  python -m bench.layouts devices=2

Numbers (weights, gradients, states of AdamW) of the rank that has most, as a part of what a rank of ddp has, after a
step of a transformer. Then the collectives of a step that the first rank calls, beside those that it must. Then, for
some numbers m of micro-batches, the part of the seconds of forward and backward in which the first of p parts waits,
beside (p - 1) / (m + p - 1).

  devices: 2     ranks
"""
SIZES = {"width": 256, "layers": 6, "length": 64, "samples": 32}
JOB = (
    *("model=transformer", "model.net.dropout=0", "data=text", "optimizer=adamw", "max_epochs=1", "logger=none"),
    *("threads=1", "test=false", "trainer.limit_train_batches=8", "trainer.limit_val_batches=0"),
)
STRATEGIES = ("ddp", "zero1", "fsdp", "tensor_parallel", "pipeline")
MICRO_BATCHES = (1, 2, 4, 8)
STORED = ("weights", "gradients", "states")


@dataclass(frozen=True)
class LayoutOptions:
    devices: int = 2


def run(plan: Plan, context: RankContext) -> dict[str, float]:
    """On a rank: train, and return what the rank that has most stores, and how much of the time rank 0 waits."""
    stored: dict[str, int] = {}

    def count(optimizer: Optimizer, *_: object) -> None:
        weights = [weight for weight in parameters_of(optimizer) if not weight.is_meta]
        states = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
        stored["weights"] = numbers(weights)
        stored["gradients"] = numbers([weight.grad for weight in weights if weight.grad is not None])
        stored["states"] = numbers(states)  # before the second step, and the third

    handle = register_optimizer_step_pre_hook(count)
    with waiting() as seconds:
        engine.run(plan, context)
    handle.remove()
    waited = seconds["waiting"] / seconds["all"] if seconds["all"] else 0.0
    ranks: list[Any] = [None] * context.world_size
    dist.all_gather_object(ranks, {**stored, "waiting": waited})
    return {key: max(rank[key] for rank in ranks) for key in stored} | {"waiting": waited}  # rank 0's


def numbers(tensors: Sequence[Tensor]) -> int:
    return sum(local_shard(tensor).numel() for tensor in tensors)


@contextmanager
def waiting() -> Iterator[dict[str, float]]:
    """Measure the seconds of a pipeline's forward and backward of training, and those spent waiting for other parts."""
    seconds = {"all": 0.0, "waiting": 0.0}

    def timed(key: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any, **named: Any) -> Any:
            began = perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                seconds[key] += perf_counter() - began

        return measured

    with ExitStack() as stack:
        for key, owner, name in (
            ("all", PartOfPipeline, "forward"),
            ("all", PartOfPipeline, "outputs"),
            ("all", PartOfPipeline, "backward"),
            ("waiting", PartOfPipeline, "receive_into"),
            ("waiting", PartOfPipeline, "wait"),
            ("waiting", PartOfPipeline, "outputs"),
        ):
            stack.enter_context(patch.object(owner, name, timed(key, getattr(owner, name))))
        yield seconds


def train(
    strategy: str, devices: int, sizes: Mapping[str, int], program: str = "bench.layouts", micro_batches: int = 4
) -> dict[str, Any]:
    """Train the net of these sizes, and return what `run` of a program does on rank 0."""
    words = [f"model.net.width={sizes['width']}", f"model.net.layers={sizes['layers']}"]
    words += [f"data.length={sizes['length']}", f"batch_size={sizes['samples']}"]
    words += [f"strategy.micro_batches={micro_batches}"] if strategy == "pipeline" else []
    with TemporaryDirectory(prefix="lockstep-bench-", ignore_cleanup_errors=True) as folder:
        overrides = [*JOB, *words, f"strategy={strategy}", f"devices={devices}"]
        return start_ranks(plan_from(compose_job(overrides)[0], Path(folder)), program)  # type: ignore[no-any-return]


def run_layouts(options: LayoutOptions) -> int:
    devices = options.devices
    baseline: dict[str, float] = {}
    expected = expected_traffic(devices, **SIZES)
    stored_rows, traffic_rows, waiting_rows = [], [], []
    for strategy in STRATEGIES:
        measured = train(strategy, devices, SIZES)
        baseline = baseline or measured
        stored_rows.append([strategy, *(figures(measured[key] / baseline[key]) for key in STORED)])
        traffic = train(strategy, devices, SIZES, "bench.traffic")
        for kind in sorted({*traffic, *expected[strategy]}):
            numbers = (*traffic.get(kind, (0, 0)), *expected[strategy].get(kind, (0, 0)))
            traffic_rows.append([strategy, kind, *(f"{number:,}" for number in numbers)])
    print(columns_text(["strategy", *STORED], stored_rows), flush=True)
    headings = ["strategy", "collective", "calls", "bytes", "expected calls", "bytes"]
    print("\n" + columns_text(headings, traffic_rows, left=2), flush=True)
    for micro_batches in MICRO_BATCHES:
        waited = train("pipeline", devices, SIZES, micro_batches=micro_batches)["waiting"]
        expected_part = (devices - 1) / (micro_batches + devices - 1)
        waiting_rows.append([str(micro_batches), figures(waited), figures(expected_part)])
    print("\n" + columns_text(["micro-batches", "waiting", "expected"], waiting_rows, left=0), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(lambda words: run_layouts(options(LayoutOptions, words)), sys.argv[1:], HELP))
