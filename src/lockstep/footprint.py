"""How much memory a plan takes at the least, reckoned without torch, held against what this machine has.

A run that fits is never refused: what torch, the processes themselves and temporary tensors take is not counted.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from lockstep import schemas
from lockstep.config_error import require
from lockstep.plan import Plan

GIGA = 1e9
NO_LIMIT = 2**60
"""Bytes from which on a cgroup's limit is none: the kernel's own word for it is a number, too."""


def require_memory(plan: Plan) -> None:
    """Refuse a plan that no memory of this machine holds, by the key that takes the most of it."""
    limit = memory_limit()
    needs = {"model": weights_bytes(plan), "data": data_bytes(plan), "batch_size": activation_bytes(plan)}
    total, largest = sum(needs.values()), max(needs, key=lambda part: needs[part])
    if limit is None or total <= limit:
        return
    ranks = plan.world.local_world_size
    on = f" on {ranks} ranks" if ranks > 1 else ""
    has = f"the run takes {total / GIGA:,.0f} GB at the least, and this machine has {limit / GIGA:,.1f} GB"
    key, value, what, instead = _named(plan, largest)
    require(False, key, value, f"{what}{on}: {has}", instead)


def _named(plan: Plan, largest: str) -> tuple[str, object, str, str]:
    """The key that takes the most, its value, what it comes to, and what to write instead."""
    inputs, outputs = sample_sizes(plan.data)
    if largest == "batch_size":
        instead = "a smaller one; accumulate_grad_batches=N averages over N of them"
        return largest, plan.batch_size, "what the layers keep for the gradients", instead
    if largest == "data":
        train, val = plan.data.train_samples, plan.data.val_size
        what = f"{train + val:,} samples of {inputs + outputs:,} numbers"
        if max(train, val) < inputs + outputs:
            return "data", plan.data.name, what, "fewer numbers a sample"
        key, value = ("data.samples", train) if train >= val else ("data.val_size", val)
        return key, value, what, "fewer"
    what = f"{parameter_count(plan.model, inputs, outputs):,} parameters"
    what += " with gradients and optimizer state" if plan.train else ""
    if isinstance(plan.model, schemas.MLP):
        return "model.hidden", plan.model.hidden, what, "smaller layers, model.hidden=[256,128], say"
    return "model", plan.model.name, what, "a smaller net, or samples of fewer numbers"


def weights_bytes(plan: Plan) -> int:
    """Weights, gradients and optimizer state of all ranks on this machine; on a GPU machine the first weights alone."""
    count = parameter_count(plan.model, *sample_sizes(plan.data)) * plan.world.local_world_size
    if plan.accelerator == "gpu":
        return 4 * count
    optimizer = plan.optimizer
    state = 2 if isinstance(optimizer, schemas.Adam) else int(optimizer.momentum > 0)
    return _number_bytes(plan) * count * (2 + state if plan.train else 1)


def data_bytes(plan: Plan) -> int:
    """The samples, which each rank holds, and their order."""
    inputs, outputs = sample_sizes(plan.data)
    a_sample = inputs + 8 if plan.data.images else 8 * (inputs + (1 if plan.data.classes else outputs))
    samples = plan.data.train_samples
    own = a_sample * (samples + plan.data.val_size) + (8 * samples if plan.train else 0)
    return own * plan.world.local_world_size


def activation_bytes(plan: Plan) -> int:
    """What the layers keep of one global batch's share of this machine until the gradients are there."""
    if not plan.train or plan.accelerator == "gpu":
        return 0
    samples = min(plan.batch_size, plan.data.train_samples) // plan.num_nodes
    size = 2 if plan.precision.endswith("mixed") else _number_bytes(plan)
    return samples * activation_count(plan.model) * size


def sample_sizes(data: schemas.Data) -> tuple[int, int]:
    """Numbers in a sample's input, and outputs that a net has for it."""
    match data:
        case schemas.Points():
            return 2, 2
        case schemas.Line():
            return 1, 1
        case schemas.RandomRegression():
            return data.features, data.outputs
        case _:
            return 28 * 28, 10


def parameter_count(model: schemas.Model, inputs: int, outputs: int) -> int:
    """Of a net for samples of so many inputs; those for images take one channel of 28×28."""
    match model:
        case schemas.Linear():
            return _affine(inputs, outputs)
        case schemas.MLP():
            return _affine(inputs, *model.hidden, outputs)
        case schemas.CNN():  # BatchNorm has a scale and a shift where the convolution has a bias
            channels = (1, 16, 32, 64, 128)
            shifts = (2 if model.norm == "batch" else 1) * sum(channels[1:])
            return sum(9 * a * b for a, b in pairwise(channels)) + shifts + _affine(2048, 1024, 128, outputs)
        case _:  # two 5×5 convolutions and two affine maps
            return (25 * 10 + 10) + (25 * 10 * 20 + 20) + _affine(320, 50, outputs)


def activation_count(model: schemas.Model) -> int:
    """Numbers that a net's layers keep of one sample at the least: the outputs of what is followed by a ReLU."""
    match model:
        case schemas.MLP():
            return sum(model.hidden)
        case schemas.CNN():
            return 16 * 26**2 + 32 * 24**2 + 64 * 10**2 + 128 * 8**2
        case schemas.LeNet() | schemas.SplitCNN():
            return 10 * 12**2 + 20 * 4**2
        case _:
            return 0


def memory_limit() -> int | None:
    """Bytes of memory and swap that this process may have: the machine's, or less by a cgroup; None: nobody says."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + _swap()
    except (ValueError, OSError):
        return None
    return min([machine, *cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def cgroup_limits(own: Path, root: Path) -> Iterator[int]:
    """The limits of the cgroups that a process is in (version 2, or 1), from its own to the outermost."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base, file = (root, "memory.max") if not controllers else (root / "memory", "memory.limit_in_bytes")
        inner = base / name.lstrip("/")
        for folder in (inner, *inner.parents):
            limit = _number_in(folder / file)
            if limit is not None and limit < NO_LIMIT:
                swap = _number_in(folder / "memory.swap.max")  # the word max, or version 1: all that the machine has
                yield limit + (_swap() if swap is None else swap)
            if folder == base:
                break


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _swap() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("SwapTotal:")), 0)


def _affine(*sizes: int) -> int:
    return sum((inward + 1) * outward for inward, outward in pairwise(sizes))


def _number_bytes(plan: Plan) -> int:
    return 8 if plan.precision == "64-true" else 4
