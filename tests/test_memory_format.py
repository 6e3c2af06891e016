"""channels_last on a CPU only for tested convolutions: others may write past their memory."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.base.config_error import ConfigError
from lockstep.engine.session import prepared_module
from lockstep.launch.memory import TESTED, is_tested, memory_format_of
from lockstep.nets.cnn import CNN
from lockstep.nets.lenet import LeNet, SplitCNN
from lockstep.runs.checkpoint.reading import identity
from lockstep.runs.compare.tolerance import tolerance_between
from tests.conftest import ROOT, MakePlan
from tests.user_code.strange_nets import Halving

SEEN = {(1, 16, 3): 28, (16, 32, 3): 26, (32, 64, 3): 12, (64, 128, 3): 10, (1, 10, 5): 28, (10, 20, 5): 12}
"""The side in pixels of the input of each convolution of the built-in nets."""
BOUNDS = {"float32": 3e-5, "float64": 1e-12, "bfloat16": 0.03}
BAD = {"shapes": [[8, 8, 1, 2]], "sizes": [12], "batches": [5], "threads": 2, "steps": 60}
"""8 to 8 channels, 1x1, stride 2, two threads, batches of five: the process crashes within a few steps."""


def outcomes(*jobs: dict[str, Any]) -> list[Any]:
    """Return the outcome of each job (tests/convolutions.py); glibc checks for writes past the end of memory."""
    checks = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3", "OMP_WAIT_POLICY": "PASSIVE"}
    words = [sys.executable, "-m", "tests.convolutions", json.dumps(jobs)]
    environment = {**os.environ, **checks}
    process = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=True)
    results: list[Any] = json.loads(process.stdout)
    return results


def within_bounds(errors: Any) -> bool:
    return isinstance(errors, dict) and all(errors[precision] < bound for precision, bound in BOUNDS.items())


def table(threads: int, batches: list[int], steps: int, **more: float) -> dict[str, Any]:
    shapes = sorted(TESTED)
    sizes = [SEEN[shape] for shape in shapes]
    return {"shapes": shapes, "sizes": sizes, "batches": batches, "threads": threads, "steps": steps, **more}


@pytest.mark.timeout(360)
@pytest.mark.slow
def test_the_table_holds_and_errors_would_be_seen() -> None:
    """A wrong number, and a convolution that is known to write past its memory."""
    result, wrong, bad = outcomes(table(2, [5], 1), table(2, [5], 1, scale=1.001), BAD)
    assert within_bounds(result), result
    assert not within_bounds(wrong)
    if torch.__version__.startswith("2.15.") and torch.backends.cpu.get_cpu_capability() == "AVX512":
        assert not within_bounds(bad)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_table_holds_for_other_batches() -> None:
    results = outcomes(*(table(threads, [1, 33], 2) for threads in (1, 4)))
    assert [within_bounds(errors) for errors in results] == [True] * 2, results


def test_every_convolution_of_the_built_in_nets_is_in_the_table() -> None:
    shape = (1, 28, 28)
    nets: list[nn.Module] = [CNN(shape, 10, "batch"), LeNet(shape, 10, dropout=0.5), SplitCNN(shape, 10)]
    assert all(is_tested(module) for net in nets for module in net.modules() if isinstance(module, nn.Conv2d))


@pytest.mark.parametrize("model", ["cnn", "lenet", "split_cnn"])
def test_built_in_nets_have_their_channels_last(model: str, make_plan: MakePlan) -> None:
    plan = make_plan(f"model={model}", "accelerator=cpu")
    net = prepared_module(plan).net
    weight = next(module.weight for module in net.modules() if isinstance(module, nn.Conv2d))
    assert weight.is_contiguous(memory_format=torch.channels_last)
    plain = prepared_module(replace(plan, memory_format="contiguous"))
    assert all(parameter.is_contiguous() for parameter in plain.parameters())


class FreeKernel(nn.Module):
    """A convolution's weight outside a convolution module."""

    def __init__(self) -> None:
        super().__init__()
        self.tested = nn.Conv2d(1, 16, 3)
        self.kernel = nn.Parameter(torch.zeros(8, 16, 1, 1))


STRANGERS: list[Callable[[], nn.Module]] = [
    lambda: Halving((1, 28, 28), 10),
    lambda: nn.Sequential(nn.Conv2d(1, 16, 3), nn.Conv2d(16, 32, 3, stride=2)),
    lambda: nn.Sequential(nn.Conv2d(1, 16, 3), nn.ConvTranspose2d(16, 32, 3)),
    lambda: nn.Conv3d(1, 2, 3),
    FreeKernel,
]


@pytest.mark.parametrize("create", STRANGERS)
def test_untested_nets_stay_contiguous_on_a_cpu(create: Callable[[], nn.Module], make_plan: MakePlan) -> None:
    plan = make_plan("model=cnn", "accelerator=cpu")
    assert memory_format_of(plan, create()) == torch.contiguous_format
    flat = not isinstance(create(), nn.Conv3d)
    on_gpu = torch.channels_last if flat else torch.contiguous_format
    assert memory_format_of(replace(plan, accelerator="gpu"), create()) == on_gpu


def test_unsafe_channels_last_is_refused(make_plan: MakePlan) -> None:
    plan = make_plan("model=cnn", "accelerator=cpu", "memory_format=channels_last")
    for good in (nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 8, 1), nn.Conv2d(16, 8, 1, stride=2), nn.Linear(2, 2)):
        assert memory_format_of(plan, nn.Sequential(good)) == torch.channels_last
    for bad in (nn.Conv2d(3, 8, 1, stride=2), nn.Conv2d(15, 64, 1, stride=(1, 3)), nn.Conv2d(32, 8, 1, 2, groups=4)):
        with pytest.raises(ConfigError, match=r"memory_format=channels_last: .* corrupts memory; write memory_form"):
            memory_format_of(plan, nn.Sequential(bad))
        assert memory_format_of(replace(plan, accelerator="gpu"), bad) == torch.channels_last


def test_runs_of_two_formats_owe_other_bits_and_go_on_from_each_other(make_plan: MakePlan) -> None:
    plans = [make_plan("model=cnn", f"memory_format={choice}") for choice in ("auto", "contiguous")]
    one, other = (plan.summary() for plan in plans)
    assert str(tolerance_between(one, one)) == "identical"
    assert str(tolerance_between(one, other)) == "within 0.0001 in the first 3 steps"
    before = {key: value for key, value in one.items() if key != "memory_format"}
    assert str(tolerance_between(before, one)) == "identical"
    assert identity(plans[0], True) == identity(plans[1], True)
