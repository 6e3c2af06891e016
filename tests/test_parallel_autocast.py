"""Which short numbers a net computes in, asked in a thread that nobody told."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from lockstep.parallel.autocast import AutocastWrapper
from lockstep.precision import MIXED


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", torch.bfloat16), ("32-true", torch.float32)])
def test_the_numbers_are_the_precisions_in_any_thread(precision: str, dtype: torch.dtype) -> None:
    net = AutocastWrapper(nn.Linear(2, 2), "cpu", MIXED.get(precision))
    with ThreadPoolExecutor(1) as other:
        assert other.submit(net, torch.ones(1, 2)).result().dtype == dtype
