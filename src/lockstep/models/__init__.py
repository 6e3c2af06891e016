"""LightningModules that train a net. To copy: one of these, or the shorter src/example/lightning_module.py."""

from typing import TYPE_CHECKING

from lockstep.base.lazy import lazy_names

if TYPE_CHECKING:
    from lockstep.models.autoencoder import Autoencoder as Autoencoder
    from lockstep.models.classifier import Classifier as Classifier
    from lockstep.models.language_model import LanguageModel as LanguageModel
    from lockstep.models.regressor import Regressor as Regressor

__getattr__, __dir__ = lazy_names(
    __name__, "autoencoder.Autoencoder classifier.Classifier language_model.LanguageModel regressor.Regressor"
)
