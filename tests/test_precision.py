from collections.abc import Callable

import pytest
import torch

from lockstep.plan import Plan
from lockstep.precision import MIXED, dtype_of


@pytest.mark.parametrize(
    ("precision", "dtype", "mixed"),
    [
        ("32-true", torch.float32, None),
        ("64-true", torch.float64, None),
        ("bf16-mixed", torch.float32, torch.bfloat16),
    ],
)
def test_the_numbers_of_a_plan(
    precision: str, dtype: torch.dtype, mixed: torch.dtype | None, make_plan: Callable[..., Plan]
) -> None:
    plan = make_plan(f"precision={precision}", "accelerator=cpu")
    assert (dtype_of(plan), MIXED.get(plan.precision)) == (dtype, mixed)
