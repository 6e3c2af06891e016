"""What a target has made: Lightning is never imported here, since whoever defines such a class has imported it."""

import sys
from typing import Any

CALLBACK = "lightning.pytorch.callbacks.callback"


def lightning_module() -> type | None:
    """The class; None where nobody has imported it, and so nobody has derived from it."""
    found = sys.modules.get("lightning.pytorch")
    return None if found is None else found.LightningModule


def is_lightning_module(made: Any) -> bool:
    return _is_a(made, "LightningModule")


def is_data_module(made: Any) -> bool:
    return _is_a(made, "LightningDataModule")


def of_pytorch_lightning(kind: Any) -> bool:
    """Whether a class derives from the package of Lightning's old name, whose classes are others."""
    other = sys.modules.get("pytorch_lightning")
    return other is not None and isinstance(kind, type) and issubclass(kind, other.LightningModule)


def is_combined_loader(made: Any) -> bool:
    utilities = sys.modules.get("lightning.pytorch.utilities")
    return utilities is not None and isinstance(made, utilities.CombinedLoader)


def _is_a(made: Any, name: str) -> bool:
    lightning = sys.modules.get("lightning.pytorch")
    return lightning is not None and isinstance(made, getattr(lightning, name))


def overrides(made: Any, name: str) -> bool:
    """Whether a LightningModule or LightningDataModule defines a method itself."""
    own, core = getattr(made, name, None), "lightning.pytorch.core"
    kinds = (kind for kind in type(made).__mro__ if kind.__module__.startswith(core) and name in vars(kind))
    base = next((vars(kind)[name] for kind in kinds), None)
    return own is not None and getattr(own, "__func__", own) is not base


def overrides_callback(callback: Any, name: str) -> bool:
    """Whether a callback of Lightning defines a hook itself."""
    kind = next((kind for kind in type(callback).__mro__ if name in vars(kind)), None)
    return name in vars(callback) or getattr(kind, "__module__", CALLBACK) != CALLBACK
