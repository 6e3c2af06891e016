"""Which short numbers a net computes in, asked in a thread that nobody told."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from lockstep.parallel.autocast import AutocastWrapper
from lockstep.plan import Plan


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", torch.bfloat16), ("32-true", torch.float32)])
def test_the_numbers_are_the_plans_in_any_thread(
    precision: str, dtype: torch.dtype, make_plan: Callable[..., Plan]
) -> None:
    net = AutocastWrapper(nn.Linear(2, 2), make_plan(f"precision={precision}", "accelerator=cpu"))
    with ThreadPoolExecutor(1) as other:
        assert other.submit(net, torch.ones(1, 2)).result().dtype == dtype
