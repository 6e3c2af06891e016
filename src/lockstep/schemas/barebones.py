"""trainer.barebones=true: nothing that only watches a run. What asks for something of it all the same is refused."""

from typing import TYPE_CHECKING, Any

from lockstep.config_error import config_error

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
    asked: dict[str, tuple[Any, object]] = {
        "fast_dev_run": (trainer.fast_dev_run, False),
        "num_sanity_val_steps": (trainer.num_sanity_val_steps, 0),
        "detect_anomaly": (trainer.detect_anomaly, False),
        "enable_progress_bar": (trainer.enable_progress_bar, None),
        "enable_model_summary": (trainer.enable_model_summary, False),
    }
    for name, (value, usual) in asked.items():
        if value:
            instead = f"trainer.{name}={'null' if usual is None else str(usual).lower()}, or {KEY}=false"
            raise config_error(f"trainer.{name}", value, WITHOUT, instead)


def require_nothing_saved(plan: "Plan") -> None:
    """Refuse what needs checkpoints, and of a LightningModule what needs values that `self.log` keeps.

    Raises:
        ConfigError: names the key.
    """
    if plan.checkpoint.every_n_steps is not None:
        key, value = "checkpoint.every_n_steps", plan.checkpoint.every_n_steps
        raise config_error(key, value, f"{KEY}=true saves no checkpoint", f"{key}=null, or {KEY}=false")
    if plan.model_summary:
        raise config_error("model_summary", True, WITHOUT, f"model_summary=false, or {KEY}=false")
    if plan.resume:
        why = f"{KEY}=true saves no checkpoint to go on from"
        raise config_error("resume", True, why, f"{KEY}=false, or ckpt_path=… to begin at one")
    if not plan.model.lightning:
        return
    monitors = {f"{own.key}.monitor": own.call.get("monitor") for own in plan.callbacks}
    for key, name in {"checkpoint.monitor": plan.checkpoint.monitor, **monitors}.items():
        if name is not None:
            why = f"with {KEY}=true self.log keeps nothing"
            raise config_error(key, name, why, f"{KEY}=false, or nothing in its place")
