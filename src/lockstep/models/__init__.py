"""LightningModules that train a net. To copy: one of these, or the shorter src/example/lightning_module.py."""

from lockstep.models.autoencoder import Autoencoder
from lockstep.models.classifier import Classifier
from lockstep.models.language_model import LanguageModel
from lockstep.models.regressor import Regressor

__all__ = ["Autoencoder", "Classifier", "LanguageModel", "Regressor"]
