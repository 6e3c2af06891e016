"""A LightningModule of the user's own, by Lightning's Trainer: `run` sets up, `following` informs the session."""

from lockstep.lit.modules.run import run

__all__ = ["run"]
