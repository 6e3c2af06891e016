"""Compare channels_last convolutions with contiguous ones in float64, in processes that may crash.

`python -m tests.convolutions` takes a JSON list of jobs and prints the outcome of each: the largest relative error by
precision, or the signal or status that ended it.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

LIMIT = 60
"""Seconds for one job."""

PRECISIONS = ("float32", "float64", "bfloat16")


def outcome(job: dict[str, Any]) -> Any:
    """Return what `errors` returns in a child process, or how the child ended."""
    read, write = os.pipe()
    if not (child := os.fork()):
        signal.alarm(LIMIT)
        os.write(write, json.dumps(errors(**job)).encode())
        sys.exit()  # glibc checks what it frees at exit
    os.close(write)
    with os.fdopen(read) as stream:
        result = stream.read()
    _, status = os.waitpid(child, 0)
    return json.loads(result) if status == 0 else f"ended by {os.waitstatus_to_exitcode(status)}"


def errors(
    shapes: list[list[Any]], sizes: list[int], batches: list[int], threads: int, steps: int, scale: float = 1.0
) -> dict[str, float]:
    """Return the largest error of outputs and gradients relative to their largest number; `scale` plants an error."""
    torch.set_num_threads(threads)
    worst = dict.fromkeys(PRECISIONS, 0.0)
    for shape, size in zip(shapes, sizes, strict=True):
        for batch in batches * steps:
            plain = nn.Conv2d(*shape).double()
            inputs = torch.randn(batch, shape[0], size, size, dtype=torch.float64)
            outward_gradient = torch.randn_like(plain(inputs))
            expected = [*passes(plain, inputs, outward_gradient)]
            for precision in PRECISIONS:
                wide = torch.float64 if precision == "float64" else torch.float32
                net = nn.Conv2d(*shape).to(wide)
                net.load_state_dict({name: value * scale for name, value in plain.state_dict().items()})
                net = net.to(memory_format=torch.channels_last)
                with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                    tensors = [*passes(net, inputs.to(wide), outward_gradient.to(wide))]
                for tensor, exact in zip(tensors, expected, strict=True):
                    error = (tensor.double() - exact).abs().max().item() / exact.abs().max().item()
                    worst[precision] = max(worst[precision], error if error == error else float("inf"))
    return worst


def passes(net: nn.Module, inputs: Tensor, outward_gradient: Tensor) -> Iterator[Tensor]:
    """Yield the outputs and the gradients of inputs and parameters; the inputs have the format of the weights."""
    weight = next(net.parameters())
    if weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous():
        inputs = inputs.to(memory_format=torch.channels_last)
    inputs = inputs.detach().requires_grad_()
    outputs = net(inputs)
    outputs.backward(outward_gradient.to(outputs))
    yield outputs.detach()
    for tensor in (inputs, *net.parameters()):
        assert tensor.grad is not None
        yield tensor.grad


if __name__ == "__main__":
    print(json.dumps([outcome(job) for job in json.loads(sys.argv[1])]))
