"""Which random numbers are equal on all ranks (the weights), and which differ (what is drawn while training)."""

from math import prod
from typing import cast

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lockstep import nets, schemas, targets
from lockstep.config_error import ConfigError, require
from lockstep.data.samples import SampleData
from lockstep.data.tensors import TensorData
from lockstep.memory.format import memory_format_of
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.random_state import seed_all
from lockstep.schemas.target import KEY


def build_model(plan: Plan, data: TensorData | SampleData) -> nn.Module:
    """The net with its first weights: drawn under the run's seed before anything else, the same on every rank.

    They are drawn in float32, and widened for a run in float64 before any checkpoint could be loaded into them.

    Raises:
        ConfigError: the net cannot have the plan's memory format.
    """
    net = plain_net(plan, data).to(dtype_of(plan))
    return net.to(memory_format=memory_format_of(plan, net))


def plain_net(plan: Plan, data: TensorData | SampleData) -> nn.Module:
    """The same weights in float32, as torch lays them out."""
    seed_all(plan.seed)
    model = plan.model
    if isinstance(model, schemas.OwnNet):
        return own_net(plan, model, data)
    options = {key: value for key, value in vars(model).items() if key != "name"}
    return nets.create(model.name, data.shape, data.outputs, **options)


def own_net(plan: Plan, model: schemas.OwnNet, data: TensorData | SampleData) -> nn.Module:
    """A net of the user's own, held to what a task needs of it.

    Raises:
        ConfigError: it is none, nothing of it can be trained, or (at its first batch) its outputs have another shape.
    """
    key, path = f"model.{KEY}", model.call[KEY]
    try:
        net = targets.create("model", model.call, {"shape": data.shape, "outputs": data.outputs})
    except ConfigError:
        raise
    except Exception as error:
        raise targets.user_error(error, f"{key}={path}", "it raises this when it is called.") from None
    why, instead = f"it makes a {type(net).__name__}, and not an nn.Module", "the path of a net"
    require(isinstance(net, nn.Module), key, path, why, instead)
    lazy = any(is_lazy(own) for own in (*net.parameters(), *net.buffers()))
    require(not lazy, key, path, "it has lazy layers, whose sizes only a batch tells", "layers with their sizes")
    trains = any(own.requires_grad for own in net.parameters())
    require(trains or not plan.train, key, path, "it has no parameter to train", "a net with some, or train=false")
    _check_first_outputs(net, f"{key}={path}", data.outputs, bool(plan.data.classes))
    return cast(nn.Module, net)


def _check_first_outputs(net: nn.Module, override: str, outputs: int, classes: bool) -> None:
    """At its first batch: a loss would broadcast outputs of another shape, or fail far from the cause."""

    def check(_net: nn.Module, _inputs: object, made: object) -> None:
        handle.remove()
        shape = tuple(made.shape) if isinstance(made, Tensor) else ()
        fits = len(shape) == 2 and shape[1] == outputs if classes else len(shape) > 1 and prod(shape[1:]) == outputs
        if not fits:
            what = f"outputs of shape {shape}" if shape else f"a {type(made).__name__}"
            wanted = f"(batch, {outputs})" if classes else f"(batch, …) with {outputs} numbers a sample"
            raise ConfigError(f"{override}: it makes {what}, and the data asks for {wanted}; write one that fits.")

    handle = net.register_forward_hook(check)
