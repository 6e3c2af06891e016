"""Launchers of Hydra that the jobs of a sweep cannot be started by."""

from omegaconf import DictConfig, OmegaConf

from lockstep.config_error import config_error

JOBLIB = "hydra_plugins.hydra_joblib_launcher."


def require_launcher(config: DictConfig) -> None:
    """Refuse the joblib launcher: its jobs are loky's processes, several at once, each of which starts ranks.

    A job takes all cores for itself, so that no time measured would mean anything; and at a signal loky kills its
    processes, so that none would leave a checkpoint.
    """
    target = OmegaConf.select(config, "hydra.launcher._target_", throw_on_resolution_failure=False)
    if str(target).startswith(JOBLIB):
        why = "its jobs run at the same time, and each takes all cores and ends without a checkpoint at a signal"
        raise config_error(
            "hydra/launcher", "joblib", why, "-m without it for one job after another, or hydra/launcher=slurm"
        )
