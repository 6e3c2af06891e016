from pathlib import Path

import pytest

from lockstep.config_error import ConfigError
from lockstep.launch import accelerator
from lockstep.launch.accelerator import resolve_accelerator
from lockstep.strategies.ddp import DDP
from lockstep.strategies.dp import DP
from lockstep.strategies.single import Single

SINGLE = Single("single")


@pytest.fixture(params=[0, 2])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(accelerator, "gpu_count", lambda: request.param)
    return int(request.param)


def test_auto_takes_gpus_where_there_are_any(gpus: int) -> None:
    assert resolve_accelerator("auto", 1, SINGLE) == ("gpu" if gpus else "cpu")
    assert resolve_accelerator("cpu", 64, DDP("ddp", share_device=False, max_restarts=0)) == "cpu"
    assert resolve_accelerator("auto", 3, DDP("ddp", share_device=True, max_restarts=0)) == ("gpu" if gpus else "cpu")


def test_gpus_that_are_not_there_are_refused(gpus: int) -> None:
    if gpus == 0:
        with pytest.raises(ConfigError, match=r"accelerator=gpu: torch sees no GPU.*write accelerator=cpu"):
            resolve_accelerator("gpu", 1, SINGLE)
    else:
        with pytest.raises(ConfigError, match=r"devices=3: torch sees 2 GPUs.*write devices=2, or accelerator=cpu"):
            resolve_accelerator("auto", 3, DP("dp"))
        hint = r"write devices=2, strategy.share_device=true, or accelerator=cpu"
        with pytest.raises(ConfigError, match=hint):
            resolve_accelerator("auto", 3, DDP("ddp", share_device=False, max_restarts=0))


def test_the_count_is_torchs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Torch is not asked where Linux has no GPU's device file; /dev's are looked for in a folder of this test."""
    monkeypatch.setattr(accelerator, "Path", lambda _: tmp_path)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 5)
    assert accelerator.gpu_count() == 0
    (tmp_path / "nvidia0").touch()
    assert accelerator.gpu_count() == 5
