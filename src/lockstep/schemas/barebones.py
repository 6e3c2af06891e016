"""trainer.barebones=true: nothing that only watches a run. What asks for something of it all the same is refused."""

from typing import TYPE_CHECKING

from lockstep.config_error import as_typed, require

if TYPE_CHECKING:
    from lockstep.plan import Plan
    from lockstep.schemas.trainer import Trainer

KEY = "trainer.barebones"
WITHOUT = f"{KEY}=true is without it"


def require_bare(trainer: "Trainer") -> None:
    """Refuse other keys of `trainer` that ask for what it leaves out, or slow a run down, as Lightning does.

    Raises:
        ConfigError: names the other key.
    """
    usual: dict[str, object] = {"fast_dev_run": False, "num_sanity_val_steps": 0, "detect_anomaly": False}
    usual |= {"enable_progress_bar": None, "enable_model_summary": False}
    for name, without in usual.items():
        key, value = f"trainer.{name}", getattr(trainer, name)
        require(not value, key, value, WITHOUT, f"{key}={as_typed(without)}, or {KEY}=false")


def require_nothing_saved(plan: "Plan") -> None:
    """Refuse what needs checkpoints, and of a LightningModule what needs values that `self.log` keeps.

    Raises:
        ConfigError: names the key.
    """
    key, every = "checkpoint.every_n_steps", plan.checkpoint.every_n_steps
    require(every is None, key, every, f"{KEY}=true saves no checkpoint", f"{key}=null, or {KEY}=false")
    require(not plan.model_summary, "model_summary", True, WITHOUT, f"model_summary=false, or {KEY}=false")
    reason = f"{KEY}=true saves no checkpoint to go on from"
    require(not plan.resume, "resume", True, reason, f"{KEY}=false, or ckpt_path=… to begin at one")
    monitors = {f"{own.key}.monitor": own.call.get("monitor") for own in plan.callbacks}
    for key, name in {"checkpoint.monitor": plan.checkpoint.monitor, **monitors}.items():
        fits = name is None or not plan.model.lightning
        require(fits, key, name, f"with {KEY}=true self.log keeps nothing", f"{KEY}=false, or nothing in its place")
