"""A search by Optuna: the value of a trial, and the database from which a stopped search goes on."""

from collections.abc import Mapping
from math import nan
from typing import Any

from omegaconf import DictConfig, OmegaConf, read_write

from lockstep.base.config_error import config_error, errors_as, require
from lockstep.plan.schemas.groups import better
from lockstep.runs.run_files import net_metrics


def direction_of(metric: str | None) -> str:
    """Return the direction of a search by its metric, for conf/hydra/sweeper/search.yaml."""
    return "minimize" if metric and better(metric) == "min" else "maximize"


OmegaConf.register_new_resolver("direction_of", direction_of, replace=True)


def value_of_trial(metric: str | None, metrics: Mapping[str, Any], sweeper: DictConfig) -> float | None:
    """Return the `optimized_metric`, or else that of best.ckpt: its negative if the search's direction is another."""
    direction = str(sweeper.get("direction", "maximize"))
    if metric is None:
        is_fitting = str(metrics.get("mode")) == direction[:3]
        return float(metrics.get("best", nan)) * (1 if is_fitting else -1)
    logged = [*net_metrics(metrics), "samples_per_second"]
    known = metric in metrics or "direction" not in sweeper  # other sweepers do without
    require(known, "optimized_metric", metric, "the run has no such value", f"one of {', '.join(logged)}")
    return metrics.get(metric)


def continue_search(sweeper: DictConfig) -> None:
    """Create the database of a search; leave out the trials that it has already, and what they have drawn."""
    storage, name = sweeper.get("storage"), sweeper.get("study_name")
    if not isinstance(storage, str):
        return
    from optuna.storages import RDBStorage
    from optuna.trial import TrialState

    hint = "hydra.sweeper.storage=sqlite:///FILE.db"
    with errors_as(lambda error: config_error("hydra.sweeper.storage", storage, " ".join(str(error).split()), hint)):
        # without autocommit Optuna 2 and SQLAlchemy 2 lose the version of the tables
        database = RDBStorage(storage, engine_kwargs={"isolation_level": "AUTOCOMMIT"})
    exists = name in {study.study_name for study in database.get_all_study_summaries()}
    trials = database.get_all_trials(database.get_study_id_from_name(str(name))) if exists else []
    finished = sum(trial.state is TrialState.COMPLETE for trial in trials)
    with read_write(sweeper):
        sweeper.n_trials = max(0, sweeper.n_trials - finished)
        print(f"{storage} has {finished} trials of {name}, {sweeper.n_trials} are to come", flush=True)
        if isinstance(sweeper.sampler.get("seed"), int):
            sweeper.sampler.seed += len(trials)  # it would draw the same values again
