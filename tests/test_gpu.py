"""What a GPU computes: both engines the same bits, and two ranks that share it what one computes."""

import sys

import pytest

from lockstep.launch.machine import gpu_count
from tests.conftest import GPUS, Command


@pytest.fixture
def on_gpu(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", GPUS)
    if not gpu_count():
        pytest.skip("needs a GPU")
    return command.fresh


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "precision=64-true",
        "model=cnn precision=bf16-mixed",
        "model=char_rnn data=text",
        "strategy=ddp",
        "strategy=ddp devices=2 strategy.share_device=true",
    ],
)
def test_both_engines_compute_the_same_bits(words: str, on_gpu: Command) -> None:
    ended = on_gpu.train(*words.split(), "engine=both", "accelerator=gpu", "max_epochs=2", "logger=none")
    assert ended.status == 0, ended.err
    assert "\nidentical; expected: identical" in ended.out


@pytest.mark.slow
def test_a_gpu_computes_what_a_cpu_does(on_gpu: Command) -> None:
    words = ("precision=64-true", "max_epochs=2", "logger=none")
    for accelerator in ("cpu", "gpu"):
        on_gpu.train(*words, f"accelerator={accelerator}", f"hydra.run.dir={on_gpu.folder / accelerator}")
    ended = on_gpu(sys.executable, "-m", "lockstep.compare", *(str(on_gpu.folder / each) for each in ("cpu", "gpu")))
    assert ended.status == 0, ended.out
    assert "expected: within 1e-10" in ended.out
