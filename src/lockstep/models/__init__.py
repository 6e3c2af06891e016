"""LightningModules that train a net: copy one, and change what you like."""

from lockstep.models.autoencoder import Autoencoder
from lockstep.models.classifier import Classifier
from lockstep.models.language_model import LanguageModel
from lockstep.models.regressor import Regressor

__all__ = ["Autoencoder", "Classifier", "LanguageModel", "Regressor"]
