"""Ranks drop in their parts what one process drops, by hand: the parts of all ranks, side by side."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from lockstep.strategies.parallel.divided_dropout import FEATURES, HEADS, attend_to_part, drop_part

RANKS = 2


def mesh(rank: int, ranks: int = RANKS) -> Any:
    return SimpleNamespace(size=lambda: ranks, get_local_rank=lambda: rank)


def seeded(seed: int = 7) -> None:
    torch.manual_seed(seed)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize(("dimension", "shape"), [(FEATURES, (3, 8)), (HEADS, (3, 4, 5, 5))])
def test_dropout_of_parts_is_that_of_the_whole(dimension: int, shape: tuple[int, ...]) -> None:
    layer, x = nn.Dropout(0.4), drawn(*shape)
    seeded()
    whole, parts = layer(x), []
    for rank, part in enumerate(x.chunk(RANKS, dimension)):
        seeded()
        parts.append(drop_part(layer, mesh(rank), dimension, part))
    assert torch.equal(torch.cat(parts, dimension), whole)
    assert whole.count_nonzero() < x.numel()
    layer.eval()
    assert drop_part(layer, mesh(0), dimension, x) is x


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("words", [{"is_causal": True}, {"attn_mask": True, "scale": 0.3}])
def test_attention_of_parts_is_that_of_the_whole(kv_heads: int, words: dict[str, Any]) -> None:
    options: dict[str, Any] = {**words, "dropout_p": 0.3, "enable_gqa": kv_heads < 4}
    if "attn_mask" in options:
        options["attn_mask"] = torch.rand(5, 6) > 0.2
    query, key, value = drawn(3, 4, 5, 8), drawn(3, kv_heads, 6, 8), drawn(3, kv_heads, 6, 8)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value, **options)

    seeded()
    whole, parts, same = attend(query, key, value), list[Tensor](), list[Tensor]()
    for rank, part in enumerate(zip(*(each.chunk(RANKS, 1) for each in (query, key, value)), strict=True)):
        for outputs, call in ((parts, attend_to_part), (same, lambda _, __, *heads: attend(*heads))):
            seeded()
            outputs.append(call(attend, mesh(rank), *part))
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-14)
    assert not torch.allclose(torch.cat(same, 1), whole, atol=1e-3)  # the control: all parts drop the same places


@pytest.mark.parametrize(("rate", "ranks"), [(0.0, RANKS), (0.3, 1)])
def test_attention_without_dropout_or_of_one_rank_is_torchs(rate: float, ranks: int) -> None:
    query, key, value = (drawn(3, 4, 5, 8) for _ in range(3))
    seeded()
    expected = scaled_dot_product_attention(query, key, value, dropout_p=rate)
    seeded()
    outputs = attend_to_part(scaled_dot_product_attention, mesh(0, ranks), query, key, value, dropout_p=rate)
    assert torch.equal(outputs, expected)
