"""A search by Optuna: what a trial returns, and the database from which a stopped search goes on."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from lockstep.base.config_error import ConfigError
from lockstep.runs.sweep.summary import continue_search, direction_of, value_of_trial

METRICS = {"monitor": "val_loss", "mode": "min", "best": 0.25, "val_loss": 0.5, "val/acc": 0.75}


def sweeper(**options: Any) -> DictConfig:
    return OmegaConf.create({"direction": "maximize", "n_trials": 3, "sampler": {"seed": 42}, **options})


@pytest.mark.parametrize(
    ("metric", "direction", "value"),
    [
        ("val/acc", "maximize", 0.75),
        (None, "minimize", 0.25),
        (None, "maximize", -0.25),  # so that the larger value is of the smaller loss
    ],
)
def test_a_trial_returns_the_metric_or_that_of_the_best_checkpoint(
    metric: str | None, direction: str, value: float
) -> None:
    assert value_of_trial(metric, METRICS, sweeper(direction=direction)) == value
    assert [direction_of(name) for name in ("val/acc", "val/loss", None)] == ["maximize", "minimize", "maximize"]


def test_a_metric_that_no_run_has_ends_the_search() -> None:
    with pytest.raises(
        ConfigError, match=r"^optimized_metric=val/f1: the run has no such value; write one of val_loss"
    ):
        value_of_trial("val/f1", METRICS, sweeper())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of SQLAlchemy about Optuna
def test_a_stopped_search_goes_on(tmp_path: Path) -> None:
    """Its finished trials count, and what they have drawn is not drawn again."""
    optuna = pytest.importorskip("optuna", reason="needs pip install hydra-optuna-sweeper")
    storage = f"sqlite:///{tmp_path / 'search.db'}"
    for done, remaining in ((0, 3), (1, 2), (2, 1)):
        config = sweeper(storage=storage, study_name="train")
        continue_search(config)
        assert (config.n_trials, config.sampler.seed) == (remaining, 42 + done)
        study = optuna.create_study(study_name="train", storage=storage, direction="maximize", load_if_exists=True)
        study.tell(study.ask(), 0.5)
    wrong = sweeper(storage=f"sqlite:///{tmp_path / 'missing' / 'search.db'}", study_name="train")
    with pytest.raises(ConfigError, match=r"^hydra.sweeper.storage=sqlite:.*search.db: .*; write hydra.sweeper"):
        continue_search(wrong)
