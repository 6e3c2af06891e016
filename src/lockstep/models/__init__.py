"""LightningModules that train a net: copy one, and change what you like.

Imported on first use: torchmetrics takes a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.models.autoencoder import Autoencoder
    from lockstep.models.classifier import Classifier
    from lockstep.models.language_model import LanguageModel
    from lockstep.models.regressor import Regressor

__all__ = ["Autoencoder", "Classifier", "LanguageModel", "Regressor"]

FILES = {
    "Autoencoder": "autoencoder",
    "Classifier": "classifier",
    "LanguageModel": "language_model",
    "Regressor": "regressor",
}


def __getattr__(name: str) -> Any:
    if name not in FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{FILES[name]}"), name)
