"""Tensor parallelism: one process per device; all compute on the same samples, each with a part of the layers.

A plan names layers and their style. `colwise` divides the outputs of a Linear over ranks, `rowwise` the inputs of the
next one, whose sums are added over ranks: between the two each rank computes with a part of the hidden numbers. An
Embedding has a part of the vectors (`rowwise`) or of each vector (`colwise`) on each rank. All other layers, and what
the module computes beside them, are the same on all ranks. `heads` is the style of a module whose attention is that of
a rank's heads, or of a Dropout of their weights.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lockstep.base.config_error import require
from lockstep.base.constraints import Rules
from lockstep.strategies.ddp import DDP
from lockstep.strategies.fsdp import Sharded, mesh_of, step_one_by_one
from lockstep.strategies.single import Single
from lockstep.strategies.strategy import NET, Strategy, net_of

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.optim import Optimizer

    from lockstep.plan.plan import Plan

METHOD = "tensor_parallel_plan"
"""A method of a net or of a LightningModule: from the number of ranks to {name or pattern of layers: style}."""

EXAMPLE = "'strategy.plan={net.0: colwise, net.2: rowwise}'"
STYLES = ("colwise", "rowwise", "heads")
DIVIDED = {
    ("Linear", "colwise"): "out_features",
    ("Linear", "rowwise"): "in_features",
    ("Embedding", "colwise"): "embedding_dim",
    ("Embedding", "rowwise"): "num_embeddings",
}
"""The size of a layer that a style divides."""


class Divided(Sharded):
    """The base of strategies that divide layers.

    plan: styles by the names of layers in the LightningModule, such as `net.0`, or by patterns of names.
    """

    plan: Mapping[str, str] | None
    refuses_compiling: ClassVar[str] = "divides layers by hooks, which were never compiled"
    explained: ClassVar[Mapping[str, str]] = {
        "mat1 and mat2 shapes cannot be multiplied": "a layer gets the part of a rank, and not all outputs, of another",
        "is a view and is being modified inplace": "an inplace ReLU, or the like, changes outputs of a divided layer",
        "is invalid for input of size": "a view of a rank's part of the outputs counts all heads: write -1 for them",
    }
    broadcast_buffers = False

    def mirrored(self, plan: "Plan") -> tuple[Strategy, int]:
        if plan.data_size == 1:
            return Single("single", in_process=False), 1
        return DDP("ddp", share_device=False), plan.data_size

    def gradient_sync(self, plan: "Plan") -> str:
        return "none"

    def shards_weights(self, plan: "Plan") -> bool:
        return True

    def rules(self, plan: "Plan") -> Rules:
        yield from super().rules(plan)
        hint = "strategy=ddp"
        yield plan.num_nodes == 1, "num_nodes", "it was never tried on several machines", "num_nodes=1"
        yield not plan.model.manual, "model", "it optimizes manually, which was never tried in parts", hint
        reason, hint = "all ranks normalize the same batch", "sync_batchnorm=false, or strategy=ddp"
        yield not plan.sync_batchnorm, "sync_batchnorm", reason, hint

    def divide(self, module: "nn.Module", mesh: "DeviceMesh") -> None:
        """Divide the layers of the plan over the ranks of a mesh. The initial weights of all ranks are the same."""
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        from lockstep.base.private_api.torch import complete_dtensors
        from lockstep.strategies.parallel.divided_dropout import FEATURES, HEADS, attend_to_part, drop_part

        complete_dtensors()  # hooks of a module may measure and change its weights
        styles: dict[str, Any] = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
        for layer, kind, style in [*self.layers(module, mesh.size())]:
            if kind == "Dropout":
                vars(layer)["forward"] = partial(drop_part, layer, mesh, HEADS if style == "heads" else FEATURES)
                continue
            if style == "heads":
                vars(layer)["forward"] = partial(attend_to_part, layer.forward, mesh)
                continue
            options: dict[str, Any] = {"output_layouts": Replicate()} if kind == "Embedding" else {}
            if (kind, style) == ("Embedding", "rowwise"):
                options["input_layouts"] = Replicate()
            parallelize_module(layer, mesh, styles[style](**options))

    def prepare_optimizers(self, plan: "Plan", optimizers: "Sequence[Optimizer]") -> None:
        super().prepare_optimizers(plan, optimizers)
        step_one_by_one(optimizers)

    def _styles(self, module: "nn.Module", ranks: int) -> Mapping[str, str]:
        """Return the styles by the patterns of layers: those of the command, the module's, or its net's."""
        if self.plan:
            return self.plan
        if hasattr(module, METHOD):
            return module.tensor_parallel_plan(ranks)  # type: ignore[no-any-return, operator]
        net: Any = net_of(module)
        reason = f"neither {type(module).__name__} nor its net has a method {METHOD}"
        require(hasattr(net, METHOD), "strategy.plan", self.plan, reason, EXAMPLE)
        return {f"{NET}.{pattern}": style for pattern, style in net.tensor_parallel_plan(ranks).items()}

    def layers(self, module: "nn.Module", ranks: int, shards: int = 1) -> "Iterator[tuple[nn.Module, str, str]]":
        """Yield each layer of the plan, and dropout between, with its kind and style; raise if ranks cannot divide one.

        shards: in how many the part of each rank is divided again, by the first dimension of its weight.
        """
        from torch import nn

        layers = dict(module.named_modules())
        uses = Counter(parameter for _, parameter in module.named_parameters(remove_duplicate=False))
        styles: dict[str, str] = {}
        for pattern, style in self._styles(module, ranks).items():
            names = [name for name in layers if fnmatchcase(name, pattern)]
            require(bool(names), f"strategy.plan.{pattern}", style, "no layer has such a name", EXAMPLE)
            styles |= dict.fromkeys(names, style)
        for name, style in styles.items():
            key, layer = f"strategy.plan.{name}", layers[name]
            require(style in STYLES, key, style, "there is no such style", f"{key}=colwise, rowwise or heads")
            if style == "heads":
                continue
            reason = f"it is a {type(layer).__name__}, and Linear and Embedding layers alone are divided"
            require(_kind(layer) in ("Linear", "Embedding"), key, style, reason, EXAMPLE)
            tied = any(uses[parameter] > 1 for parameter in layer.parameters())
            require(not tied, key, style, "its weight is another layer's, too", "a plan without it")
            size = DIVIDED[_kind(layer), style]
            parts = ranks * (shards if size in ("out_features", "num_embeddings") else 1)
            reason = f"{parts} ranks do not divide its {size}={getattr(layer, size)}"
            require(getattr(layer, size) % parts == 0, key, style, reason, "another size, or strategy=ddp")
        linear = {style for name, style in styles.items() if isinstance(layers[name], nn.Linear)}
        reason = "a colwise Linear and the rowwise one that takes its parts go together"
        require(len(linear) != 1, "strategy.plan", self.plan, reason, "the name of the other layer beside it")
        require(bool(styles), "strategy.plan", self.plan, "it names no layer", EXAMPLE)
        for name, layer in _dropout_of_parts(layers, styles):
            reason = f"{type(layer).__name__} between divided layers would drop the same places of different parts"
            require(type(layer) is nn.Dropout, f"dropout of {name}", layer.p, reason, "p=0, or a Dropout")
            yield layer, "Dropout", "colwise"
        for name, style in styles.items():
            yield layers[name], _kind(layers[name]), style


@dataclass(frozen=True)
class TensorParallel(Divided):
    name: Literal["tensor_parallel"]
    plan: Mapping[str, str] | None
    order: ClassVar[str] = "tensor_parallel"
    batch_key: ClassVar[tuple[str, ...]] = ("undivided", "micro_batches")

    def model_parallel_size(self, devices: int) -> int:
        return devices

    def check_module(self, module: "nn.Module", devices: int) -> None:
        [*self.layers(module, devices)]

    def lay_out(self, plan: "Plan", module: "nn.Module") -> None:
        self.divide(module, mesh_of(plan, tensor=plan.world_size))


def _kind(layer: "nn.Module") -> str:
    from torch import nn

    return next((kind.__name__ for kind in (nn.Linear, nn.Embedding, nn.Dropout) if isinstance(layer, kind)), "")


def _dropout_of_parts(layers: Mapping[str, Any], styles: Mapping[str, str]) -> "Iterator[tuple[str, nn.Module]]":
    """Yield dropout between a colwise layer and a rowwise one, in the order of a Sequential."""
    from torch import nn

    from lockstep.base.private_api.torch import DROPOUT

    for path, parent in layers.items():
        is_divided = False
        for child, layer in parent.named_children() if isinstance(parent, nn.Sequential) else ():
            name = f"{path}.{child}".lstrip(".")
            is_divided = {"colwise": True, "rowwise": False}.get(styles.get(name, ""), is_divided)
            if is_divided and isinstance(layer, DROPOUT) and layer.p:
                yield name, layer
