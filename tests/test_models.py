"""The modules of lockstep.models in a stock Trainer: values by hand, and what they refuse."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from math import exp, isnan
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from sklearn.metrics import f1_score
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from lockstep.base.config_error import ConfigError
from lockstep.models import Autoencoder, Classifier, LanguageModel, Regressor
from tests.conftest import IN_PROCESS

pytestmark = IN_PROCESS
Slow = partial(SGD, lr=0.1)


class Given(nn.Module):
    """A net that returns its input, or always the same outputs, times a weight of 1."""

    def __init__(self, outputs: Any = None) -> None:
        super().__init__()
        self.scale, self.outputs = nn.Parameter(torch.ones(())), outputs

    def forward(self, x: Tensor) -> Any:
        return x * self.scale if self.outputs is None else self.outputs


class Tokens(nn.Module):
    def __init__(self, vocabulary: int = 5) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens)  # type: ignore[no-any-return]


def trainer(epochs: int = 3, **options: Any) -> Trainer:
    names = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    quiet: Any = dict.fromkeys(names, False)
    return Trainer(accelerator="cpu", max_epochs=epochs, num_sanity_val_steps=0, **quiet, **options)


def loader(*tensors: Tensor, batch_size: int = 8, shuffle: bool = False) -> Any:
    return DataLoader(TensorDataset(*tensors), batch_size, shuffle=shuffle)


def measured(module: LightningModule, *tensors: Tensor, batch_size: int = 8) -> dict[str, float]:
    """Return what a validation logs, under names without `val/`."""
    stock = trainer()
    stock.validate(module, loader(*tensors, batch_size=batch_size), verbose=False)
    return {name.removeprefix("val/"): float(value) for name, value in stock.callback_metrics.items()}


def test_each_module_is_trained_by_a_stock_trainer() -> None:
    """Each loss falls to below 0.7 of that of the first epoch; hyperparameters are what a checkpoint may hold."""
    seed_everything(1)
    x, tokens = torch.randn(64, 4), torch.arange(64 * 7).reshape(64, 7) % 5
    adam, one_cycle = partial(Adam, lr=0.1), partial(lr_scheduler.OneCycleLR, max_lr=0.1)
    jobs: list[tuple[LightningModule, tuple[Tensor, ...]]] = [
        (Classifier(nn.Linear(4, 3), adam, one_cycle, num_classes=3), (x, x[:, :3].argmax(1))),
        (Regressor(nn.Linear(4, 2), adam), (x, x[:, :2] - 1)),
        (LanguageModel(Tokens(), adam), (tokens,)),
        (Autoencoder(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 4)), adam), (x,)),
    ]
    for module, tensors in jobs:
        assert all(value is None or isinstance(value, int | str) for value in module.hparams.values())
        stock = trainer(6)
        stock.validate(module, loader(*tensors), verbose=False)
        first = stock.callback_metrics["val/loss"]
        stock.fit(module, loader(*tensors, shuffle=True), loader(*tensors))
        assert {"train/loss", "val/loss"} <= stock.callback_metrics.keys()
        stock.test(module, loader(*tensors), verbose=False)
        assert stock.callback_metrics["test/loss"] < 0.7 * first, module
        predicted = stock.predict(module, loader(*tensors))
        assert predicted is not None
        assert len(predicted) == 8


def test_a_classifier_by_hand() -> None:
    """20 samples in batches of 8, 8, 4: means over samples, not over batches; F1 of the whole split."""
    torch.manual_seed(0)
    logits, targets = 2 * torch.randn(20, 3), torch.randint(3, (20,))
    values = measured(Classifier(Given(), Slow, num_classes=3), logits, targets)
    assert values["loss"] == pytest.approx(float(cross_entropy(logits, targets)), rel=1e-5)
    assert values["acc"] == pytest.approx(float((logits.argmax(1) == targets).double().mean()), rel=1e-6)
    assert values["f1"] == pytest.approx(f1_score(targets, logits.argmax(1), average="macro"), rel=1e-6)


def test_outputs_beyond_the_classes_are_never_predicted() -> None:
    """The loss is over all five outputs; callbacks that draw get those of the three classes."""
    logits, targets = torch.tensor([[0.0, 1, 0, 9, 9], [2, 1, 0, 9, 9]]), torch.tensor([1, 0])
    module = Classifier(Given(), Slow, num_classes=3)
    values = measured(module, logits, targets)
    assert (values["acc"], values["f1"]) == (1.0, 1.0)
    assert values["loss"] == pytest.approx(float(cross_entropy(logits, targets)), rel=1e-6)
    module.log = module.log_dict = lambda *_, **__: None  # type: ignore[assignment]
    returned = module.test_step([logits, targets], 0)
    assert torch.equal(returned["logits"], logits[:, :3])
    assert returned["targets"] is targets


def test_squared_errors_by_hand() -> None:
    """A regressor's targets and an autoencoder's inputs; a net may return them in another shape."""
    outputs = torch.tensor([[1.0, 2.0], [3.0, 5.0], [0.0, 0.0]])
    targets = torch.tensor([[1.0, 1.0], [3.0, 3.0], [1.0, 0.0]])
    expected = {"loss": 6 / 6, "rmse": 1.0, "mae": 4 / 6, "r2": ((1 - 1 / (24 / 9)) + (1 - 5 / (42 / 9))) / 2}
    assert measured(Regressor(Given(), Slow), outputs, targets, batch_size=2) == pytest.approx(expected)
    reconstruction = Given(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    values = measured(Autoencoder(reconstruction, Slow), torch.tensor([[[1.0, 2.0], [3.0, 6.0]]]))
    assert values == {"loss": pytest.approx(4 / 4)}


def test_a_language_model_by_hand() -> None:
    """Tokens alone are shifted; perplexity is the exponential of the loss of the split, not the mean of batches'."""
    torch.manual_seed(0)
    net, tokens = Tokens(), torch.randint(5, (5, 9))
    logits, targets = net(tokens[:, :-1]), tokens[:, 1:]
    loss = float(cross_entropy(logits.mT, targets))
    for batch in ((tokens,), (tokens[:, :-1], targets)):
        values = measured(LanguageModel(net, Slow), *batch, batch_size=2)
        assert values["loss"] == pytest.approx(loss, rel=1e-5)
        assert values["perplexity"] == pytest.approx(exp(loss), rel=1e-5)
        assert values["acc"] == pytest.approx(float((logits.argmax(2) == targets).double().mean()), rel=1e-6)
    net.table.weight.data[1] = torch.nan  # torchmetrics would leave out the batch whose loss is NaN
    assert isnan(measured(LanguageModel(net, Slow), torch.tensor([[0, 0], [1, 0]]), batch_size=1)["perplexity"])


def test_a_language_model_logs_evaluations_over_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a stock Trainer, whose ranks else log their own share."""
    model, synced = LanguageModel(Given(torch.zeros(2, 4, 3)), Slow), dict[str, bool]()
    monkeypatch.setattr(model, "log", lambda name, *_, sync_dist=False, **__: synced.update({name: sync_dist}))
    for stage in ("train", "val"):
        model.measure(stage, (torch.zeros(2, 5, dtype=torch.long),))
    assert [synced[f"{stage}/{name}"] for stage in ("train", "val") for name in ("loss", "acc")] == [False] * 2 + [
        True
    ] * 2


FLOATS, CLASSES, SEQUENCES = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), torch.zeros(4, 5, dtype=torch.long)
ThreeClasses = partial(Classifier, num_classes=3)


@pytest.mark.parametrize(
    ("make", "outputs", "batch", "sentence"),
    [
        (ThreeClasses, FLOATS, (FLOATS, FLOATS), "model: the targets of the data are real numbers, and a Classifier"),
        (ThreeClasses, FLOATS[:, :2], (FLOATS, CLASSES), "model.net: it returns shape (4, 2); expected (4, 3 or more)"),
        (ThreeClasses, (FLOATS, 1), (FLOATS, CLASSES), "model.net: it returns a tuple; expected (4, 3 or more)."),
        (ThreeClasses, FLOATS, (FLOATS, CLASSES + 4), "model.num_classes=3: the data has targets from 4 to 4"),
        (ThreeClasses, FLOATS, (FLOATS,), "data: a batch has Tensor; write a Dataset of pairs"),
        (Regressor, FLOATS, (FLOATS, CLASSES), "model: the targets of the data are whole numbers, and a Regressor ne"),
        (Regressor, FLOATS[:, :1], (FLOATS, FLOATS), "model.net: it returns shape (4, 1); expected (4, 3)."),
        (Autoencoder, None, (SEQUENCES,), "data: its inputs are whole numbers, and an Autoencoder returns real ones"),
        (LanguageModel, None, (FLOATS, FLOATS), "data: a LanguageModel needs sequences of whole numbers (batch, len"),
    ],
)
def test_a_wrong_batch_is_refused_in_a_sentence(
    make: Callable[..., LightningModule], outputs: Any, batch: Sequence[Tensor], sentence: str
) -> None:
    """A loss would broadcast it, or fail far from the cause."""
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        make(Given(outputs), Slow).training_step(batch, 0)


def test_a_classifier_needs_the_number_of_classes() -> None:
    """Any default would be wrong without an error: outputs beyond it are never predicted."""
    with pytest.raises(TypeError, match="num_classes"):
        Classifier(Given(), Slow)  # type: ignore[call-arg]
