"""The Lightning engine: a LightningModule, a LightningDataModule, a Trainer with callbacks; `run` joins them."""

from lockstep.lit.run import run

__all__ = ["run"]
