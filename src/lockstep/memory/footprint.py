"""The least memory that a plan takes, compared with what this machine has before any rank starts.

The command itself never imports torch, so the built-in nets are counted by formula (tests compare them with the nets);
any other net counts as nothing. A run that fits is never refused: what torch, the processes themselves and temporary
tensors take is not counted.
"""

from itertools import pairwise
from math import prod

from lockstep import schemas
from lockstep.config_error import require
from lockstep.memory.limit import memory_limit
from lockstep.plan import Plan

GIGA = 1e9


def require_memory(plan: Plan) -> None:
    """Refuse a plan that needs more memory than this machine has, by the key that takes the most of it."""
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
    """The key that takes the most, its value, the amount in words, and what to write instead."""
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
    """Weights, gradients and optimizer state of all ranks on this machine; on a GPU machine the first weights alone.

    The first weights are whole on each rank, also where the rest is in shards.
    """
    count = parameter_count(plan.model, *sample_sizes(plan.data)) * plan.world.local_world_size
    if plan.accelerator == "gpu":
        return 4 * count
    optimizer = plan.optimizer
    state = {schemas.Adam: 2, schemas.SGD: int(getattr(optimizer, "momentum", 0) > 0)}.get(type(optimizer), 0)
    shards = plan.strategy.shards(plan.world_size)
    return int(_number_bytes(plan) * count * max(1, (2 + state) / shards if plan.train else 1))


def data_bytes(plan: Plan) -> int:
    """The samples, which each rank holds, and their order; of the user's own data nobody knows what they take."""
    if isinstance(plan.data, schemas.OwnData | schemas.Loaders):
        return 0
    inputs, outputs = sample_sizes(plan.data)
    a_sample = inputs + 8 if plan.data.images else 8 * (inputs + (1 if plan.data.classes else outputs))
    samples = plan.data.train_samples
    own = a_sample * (samples + plan.data.val_size) + (8 * samples if plan.train else 0)
    return own * plan.world.local_world_size


def activation_bytes(plan: Plan) -> int:
    """What autograd saves of this machine's share of a global batch until the backward pass."""
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
        case schemas.OwnData() | schemas.OwnLoaders():
            return prod(data.shape), data.outputs
        case _:
            return 28 * 28, 10


def parameter_count(model: schemas.Model, inputs: int, outputs: int) -> int:
    """Of a net for samples of so many inputs; nets for images take one channel of 28×28. 0: unknown."""
    match model:
        case schemas.Linear():
            return _affine(inputs, outputs)
        case schemas.MLP():
            return _affine(inputs, *model.hidden, outputs)
        case schemas.CNN():  # BatchNorm has a scale and a shift where the convolution has a bias
            channels = (1, 16, 32, 64, 128)
            shifts = (2 if model.norm == "batch" else 1) * sum(channels[1:])
            return sum(9 * a * b for a, b in pairwise(channels)) + shifts + _affine(2048, 1024, 128, outputs)
        case schemas.LeNet() | schemas.SplitCNN():  # two 5×5 convolutions and two affine maps
            return (25 * 10 + 10) + (25 * 10 * 20 + 20) + _affine(320, 50, outputs)
        case _:
            return 0


def activation_count(model: schemas.Model) -> int:
    """Numbers that autograd saves of one sample at the least: the outputs that go into a ReLU. 0: none, or unknown."""
    match model:
        case schemas.MLP():
            return sum(model.hidden)
        case schemas.CNN():
            return 16 * 26**2 + 32 * 24**2 + 64 * 10**2 + 128 * 8**2
        case schemas.LeNet() | schemas.SplitCNN():
            return 10 * 12**2 + 20 * 4**2
        case _:
            return 0


def _affine(*sizes: int) -> int:
    return sum((inward + 1) * outward for inward, outward in pairwise(sizes))


def _number_bytes(plan: Plan) -> int:
    return 8 if plan.precision == "64-true" else 4
