"""What a GPU computes: both engines the same bits, and ranks that share it what one process computes."""

import sys

import pytest

from lockstep.launch.machine import gpu_count
from tests.conftest import GPUS, Command

SHARED = "strategy.share_device=true"
TRANSFORMER = (
    *("model=transformer", "model.net.dropout=0", "model.net.layers=2", "data=text", "max_epochs=1", "logger=none"),
    *("precision=64-true", "trainer.limit_train_batches=12", "trainer.limit_val_batches=2", "test=false"),
)


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
        f"strategy=ddp devices=2 {SHARED}",
        f"strategy=zero1 devices=2 {SHARED}",
    ],
)
def test_both_engines_compute_the_same_bits(words: str, on_gpu: Command) -> None:
    ended = on_gpu.train(*words.split(), "engine=both", "accelerator=gpu", "max_epochs=2", "logger=none")
    assert ended.status == 0, ended.err
    assert "\nidentical; expected: identical" in ended.out


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "strategy=single",
        "strategy=fsdp",
        "strategy=tensor_parallel",
        "strategy=mesh",
        f"strategy=zero1 devices=2 {SHARED}",
        f"strategy=pipeline devices=2 {SHARED}",
        f"strategy=pipeline strategy.recompute=true devices=2 {SHARED}",
    ],
)
def test_a_gpu_computes_what_one_process_does_on_a_cpu(words: str, on_gpu: Command) -> None:
    for accelerator, more in (("cpu", ""), ("gpu", words)):
        ended = on_gpu.train(
            *TRANSFORMER, *more.split(), f"accelerator={accelerator}", f"hydra.run.dir={on_gpu.folder / accelerator}"
        )
        assert ended.status == 0, ended.err
    ended = on_gpu(sys.executable, "-m", "lockstep.compare", *(str(on_gpu.folder / each) for each in ("cpu", "gpu")))
    assert ended.status == 0, ended.out
    assert "expected: within 1e-10" in ended.out
