"""Dropout in divided layers: each rank draws the mask of all parts, as one process does, and uses that of its part.

DTensors draw the mask of a part by generators that CPUs do not have.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

HEADS, FEATURES = -3, -1
"""The dimension of heads in (batch, heads, length, places), and of features."""


def drop_part(layer: Any, mesh: "DeviceMesh", dimension: int, x: Tensor) -> Tensor:
    """Return the part of a rank after dropout; it is divided in this dimension."""
    return x * part_of_mask(x, layer.p, mesh, dimension) if layer.training else x


def part_of_mask(x: Tensor, rate: float, mesh: "DeviceMesh", dimension: int) -> Tensor:
    """Return this rank's part of a mask that is drawn of all parts of x."""
    shape = [*x.shape]
    shape[dimension] *= mesh.size()
    return dropout(x.new_ones(shape), rate).chunk(mesh.size(), dimension)[mesh.get_local_rank()]


def attend_to_part(forward: Callable[..., Any], mesh: "DeviceMesh", *arguments: Any, **options: Any) -> Any:
    """Call the forward of a module whose attention has the heads of a rank."""
    with AttentionOfPart(mesh):
        return forward(*arguments, **options)


class AttentionOfPart(TorchFunctionMode):
    """Has `scaled_dot_product_attention` drop what one process drops of the heads of a rank."""

    def __init__(self, mesh: "DeviceMesh") -> None:
        super().__init__()
        self.mesh = mesh

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func is not scaled_dot_product_attention:
            return func(*args, **options)
        return self.attention(*args, **options)

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> Tensor:
        """Return the attention; the identity in place of the values gives its weights, which are dropped."""
        if not dropout_p or self.mesh.size() == 1:
            return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)
        places = torch.eye(key.shape[-2], dtype=value.dtype, device=value.device).expand(*key.shape[:-1], -1)
        weights = scaled_dot_product_attention(query, key, places, attn_mask, 0.0, is_causal, **options)
        weights = weights * part_of_mask(weights, dropout_p, self.mesh, HEADS)
        return weights @ value.repeat_interleave(weights.shape[HEADS] // value.shape[HEADS], HEADS)
