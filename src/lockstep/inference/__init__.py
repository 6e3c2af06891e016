"""A trained LightningModule, back from the folder of its run: `load`; and what `predict` and `export` do with it."""

from lockstep.inference.trained_module import load

__all__ = ["load"]
