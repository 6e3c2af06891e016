"""Which options each config group has, by name, and which groups may name code of the user's own."""

from lockstep.schemas import (
    CNN,
    CSV,
    MLP,
    MNIST,
    SGD,
    Adam,
    Auto,
    Autoencoding,
    Classification,
    Constant,
    Digits,
    LanguageModelling,
    LeNet,
    Lightning,
    Line,
    Linear,
    MLflow,
    ModelLoaders,
    NoCallback,
    NoLogger,
    OneCycle,
    OwnCallback,
    OwnData,
    OwnLogger,
    OwnNet,
    OwnOptimizer,
    OwnScheduler,
    OwnTask,
    Points,
    RandomRegression,
    Raw,
    Regression,
    SplitCNN,
    Target,
    TensorBoard,
    Wandb,
    WarmupLinear,
)
from lockstep.strategies.registry import STRATEGIES

GROUPS: dict[str, dict[str, type]] = {
    "engine": {"lightning": Lightning, "raw": Raw, "both": Raw},
    "strategy": {**STRATEGIES},
    "model": {
        "linear": Linear,
        "mlp": MLP,
        "cnn": CNN,
        "lenet": LeNet,
        "split_cnn": SplitCNN,
    },
    "task": {
        "auto": Auto,
        "classification": Classification,
        "regression": Regression,
        "autoencoding": Autoencoding,
        "language_modelling": LanguageModelling,
    },
    "data": {
        **{
            "digits": Digits,
            "mnist": MNIST,
            "points": Points,
            "line": Line,
            "random_regression": RandomRegression,
        },
        "model": ModelLoaders,
    },
    "optimizer": {"sgd": SGD, "adam": Adam, "adamw": Adam},
    "scheduler": {"none": Constant, "onecycle": OneCycle, "warmup_linear": WarmupLinear},
    "logger": {
        "tensorboard": TensorBoard,
        "csv": CSV,
        "wandb": Wandb,
        "mlflow": MLflow,
        "none": NoLogger,
    },
    "callbacks": {"none": NoCallback},
}

OWN_CODE: dict[str, type[Target]] = {
    "model": OwnNet,
    "task": OwnTask,
    "data": OwnData,
    "optimizer": OwnOptimizer,
    "scheduler": OwnScheduler,
    "logger": OwnLogger,
    "callbacks": OwnCallback,
}
"""The groups whose YAML files may name a `_target_` of the user's own."""

SEVERAL = ("logger", "callbacks")
"""The groups that take several options at a time: `logger=[csv,tensorboard]`, an option's keys are `logger.csv.KEY`."""
