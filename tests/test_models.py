"""The modules of lockstep.models in a stock Trainer: values by hand, schedules, and what they refuse."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from math import exp, isnan, log
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
    """A net whose outputs are its inputs, times a weight of 1."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Tokens(nn.Module):
    def __init__(self, vocabulary: int = 5) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens)  # type: ignore[no-any-return]


class Fixed(nn.Module):
    """A net that returns what it was given, whatever the input."""

    def __init__(self, outputs: Any) -> None:
        super().__init__()
        self.weight, self.outputs = nn.Parameter(torch.ones(())), outputs

    def forward(self, _: Tensor) -> Any:
        return self.outputs


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
    """Each loss falls to below 0.7 of that of the first epoch."""
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
    """The loss is over all five outputs."""
    logits, targets = torch.tensor([[0.0, 1, 0, 9, 9], [2, 1, 0, 9, 9]]), torch.tensor([1, 0])
    module = Classifier(Given(), Slow, num_classes=3)
    values = measured(module, logits, targets)
    assert (values["acc"], values["f1"]) == (1.0, 1.0)
    module.log = module.log_dict = lambda *_, **__: None  # type: ignore[assignment]
    assert torch.equal(module.test_step([logits, targets], 0)["logits"], logits[:, :3]), "as the confusion matrix"
    assert values["loss"] == pytest.approx(float(cross_entropy(logits, targets)), rel=1e-6)


@pytest.mark.parametrize("ignored", [-100, 0])
def test_targets_that_do_not_count(ignored: int) -> None:
    """Of elements, such as pixels; also if the class that does not count is one that a net may predict.

    Batches of 2 and 1 samples have 5 and 1 targets that count: 3 of the 6 are predicted.
    """
    targets = torch.tensor([[1, 2, ignored], [2, 2, 1], [ignored, ignored, 1]])
    predicted = torch.tensor([[1, 2, 0], [1, 1, 1], [0, 0, 2]])
    logits = nn.functional.one_hot(predicted, 3).mT.float()
    module = Classifier(Given(), Slow, num_classes=3, ignore_index=ignored)
    values = measured(module, logits, targets, batch_size=2)
    hit, miss = log(exp(1) + 2) - 1, log(exp(1) + 2)
    assert values["loss"] == pytest.approx((3 * hit + 3 * miss) / 6, rel=1e-6)
    assert values["acc"] == pytest.approx(1 / 2)
    logged: dict[str, float] = {}
    module.log = lambda name, value, **_: logged.update({name: float(value)})  # type: ignore[method-assign]
    for rows, hits, weight in (([0, 1], 3, 5), ([2], 0, 1)):
        step = module.training_step([logits[rows], targets[rows]], 0)
        assert step["weight"] == weight
        assert float(step["loss"]) == pytest.approx((hits * hit + (weight - hits) * miss) / weight, rel=1e-6)
        assert logged["train/acc"] == pytest.approx(hits / weight)
    nothing = module.training_step([logits[:1], torch.full((1, 3), ignored)], 0)
    assert (float(nothing["loss"]), nothing["weight"]) == (0.0, 0)


def test_squared_errors_by_hand() -> None:
    """A regressor's targets and an autoencoder's inputs; a net may return them in another shape."""
    outputs = torch.tensor([[1.0, 2.0], [3.0, 5.0], [0.0, 0.0]])
    targets = torch.tensor([[1.0, 1.0], [3.0, 3.0], [1.0, 0.0]])
    assert measured(Regressor(Given(), Slow), outputs, targets, batch_size=2) == {"loss": pytest.approx(6 / 6)}
    reconstruction = Fixed(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    values = measured(Autoencoder(reconstruction, Slow), torch.tensor([[[1.0, 2.0], [3.0, 6.0]]]))
    assert values == {"loss": pytest.approx(4 / 4)}


@pytest.mark.parametrize("ignored", [None, 4])
def test_a_language_model_by_hand(ignored: int | None) -> None:
    """Tokens alone are shifted; perplexity is the exponential of the loss of the split, not the mean of batches'."""
    torch.manual_seed(0)
    net, tokens = Tokens(), torch.randint(5, (5, 9))
    logits, targets = net(tokens[:, :-1]), tokens[:, 1:]
    counts = targets != ignored if ignored is not None else torch.ones_like(targets, dtype=torch.bool)
    loss = float(cross_entropy(logits[counts], targets[counts]))
    for batch in ((tokens,), (tokens[:, :-1], targets)):
        values = measured(LanguageModel(net, Slow, ignore_index=ignored), *batch, batch_size=2)
        assert values["loss"] == pytest.approx(loss, rel=1e-5)
        assert values["perplexity"] == pytest.approx(exp(loss), rel=1e-5)
        hits = (logits.argmax(2) == targets)[counts]
        assert values["acc"] == pytest.approx(float(hits.double().mean()), rel=1e-6)


def test_a_diverged_language_model_has_no_perplexity() -> None:
    """torchmetrics would leave out the batch whose loss is NaN."""
    net = Tokens(vocabulary=2)
    net.table.weight.data[1] = torch.nan
    assert isnan(measured(LanguageModel(net, Slow), torch.tensor([[0, 0], [1, 0]]), batch_size=1)["perplexity"])


def test_what_evaluations_return() -> None:
    """Callbacks that draw pictures take logits or predictions, and targets."""
    x, classes = torch.randn(2, 3), torch.tensor([0, 1])
    for module, name, targets in (
        (Classifier(Given(), Slow, num_classes=3), "logits", classes),
        (Regressor(Given(), Slow), "preds", x),
    ):
        module.log = module.log_dict = lambda *_, **__: None  # type: ignore[assignment]
        for step in (module.validation_step, module.test_step):
            returned = step([x, targets], 0)
            assert torch.equal(returned[name], x)
            assert returned["targets"] is targets


FLOATS, CLASSES, SEQUENCES = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), torch.zeros(4, 5, dtype=torch.long)


def of_three(net: nn.Module) -> LightningModule:
    return Classifier(net, Slow, num_classes=3)


@pytest.mark.parametrize(
    ("make", "outputs", "batch", "sentence"),
    [
        (of_three, FLOATS, (FLOATS, FLOATS), "model: the targets of the data are real numbers, and a Classifier needs"),
        (of_three, FLOATS[:, :2], (FLOATS, CLASSES), "model.net: it returns shape (4, 2); expected (4, 3 or more)."),
        (
            of_three,
            torch.zeros(4, 5),
            (FLOATS, CLASSES + 4),
            "model.num_classes=3: the data has a target of class 4, c",
        ),
        (of_three, FLOATS[:2], (FLOATS, CLASSES), "model.net: it returns shape (2, 3); expected (4, 3 or more)."),
        (of_three, FLOATS[:, 0], (FLOATS, CLASSES), "model.net: it returns shape (4,); expected (4, 3 or more)."),
        (of_three, FLOATS[0, 0], (FLOATS, CLASSES), "model.net: it returns shape (); expected (4, 3 or more)."),
        (of_three, (FLOATS, 1), (FLOATS, CLASSES), "model.net: it returns a tuple; expected (4, 3 or more)."),
        (of_three, FLOATS, (FLOATS, SEQUENCES), "model.net: it returns shape (4, 3); expected (4, 3 or more, 5)."),
        (Regressor, FLOATS, (FLOATS, CLASSES), "model: the targets of the data are whole numbers, and a Regressor ne"),
        (Regressor, FLOATS[:, :1], (FLOATS, FLOATS), "model.net: it returns shape (4, 1); expected (4, 3)."),
        (Autoencoder, FLOATS, (SEQUENCES,), "data: its inputs are whole numbers, and an Autoencoder returns real ones"),
        (
            Autoencoder,
            FLOATS[:, 0],
            (FLOATS[:, :1],),
            "model.net: it returns shape (4,); expected (4, …) with 1 numbers",
        ),
        (Autoencoder, FLOATS[:, :2], (FLOATS,), "model.net: it returns shape (4, 2); expected (4, …) with 3 numbers a"),
        (
            LanguageModel,
            FLOATS,
            (FLOATS, FLOATS),
            "data: a LanguageModel needs sequences of whole numbers (batch, len",
        ),
        (LanguageModel, FLOATS, (SEQUENCES,), "model.net: it returns shape (4, 3); expected (4, 4, vocabulary)."),
    ],
)
def test_a_wrong_batch_is_refused_in_a_sentence(
    make: Callable[..., LightningModule], outputs: Any, batch: Sequence[Tensor], sentence: str
) -> None:
    """A loss would broadcast it, or fail far from the cause."""
    module = make(Fixed(outputs)) if make is of_three else make(Fixed(outputs), Slow)
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}") as refused:
        module.validation_step([*batch], 0)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        (
            {"x": FLOATS, "y": CLASSES},
            "data: a batch is a mapping of x, y; write data.input_key=KEY data.target_k",
        ),
        ([FLOATS], "data: a batch is (Tensor); expected a pair of tensors, inputs and targets."),
        ([FLOATS, "a"], "data: a batch is (Tensor, str); expected a pair of tensors, inputs and targets."),
    ],
)
def test_a_batch_of_another_kind_is_refused(batch: Any, sentence: str) -> None:
    for module in (of_three(Given()), Regressor(Given(), Slow)):
        with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
            module.training_step(batch, 0)


def test_inputs_are_looked_at_before_a_net_fails() -> None:
    """An embedding of real numbers and an affine map of tokens end in an error of torch's."""
    net, batch = nn.Embedding(5, 5), [FLOATS, CLASSES]
    with pytest.raises(ConfigError, match=r"^data: a LanguageModel needs sequences of whole numbers"):
        LanguageModel(net, Slow).training_step(batch, 0)
    with pytest.raises(ConfigError, match=r"^data: its inputs are whole numbers, and an Autoencoder returns real ones"):
        Autoencoder(nn.Linear(5, 5), Slow).training_step(SEQUENCES, 0)


def test_a_target_that_does_not_count_is_no_class() -> None:
    module = Classifier(Fixed(FLOATS), Slow, num_classes=3, ignore_index=255)
    module.log = lambda *_, **__: None  # type: ignore[method-assign]
    assert module.training_step([FLOATS, torch.tensor([0, 255, 2, 255])], 0)["weight"] == 2


@pytest.mark.parametrize(
    "module",
    [
        Classifier(Given(), Slow, num_classes=3, ignore_index=1),
        Regressor(Given(), Slow),
        LanguageModel(Given(), Slow, ignore_index=1),
        Autoencoder(Given(), Slow),
    ],
)
def test_hyperparameters_are_plain_values(module: LightningModule) -> None:
    """A checkpoint with a net, or with a partial of an optimizer, could not be loaded safely."""
    assert {"monitor", "scheduler_interval"} <= {*module.hparams}
    assert not {"net", "optimizer", "scheduler"} & {*module.hparams}
    assert all(value is None or isinstance(value, int | str) for value in module.hparams.values())


def test_a_classifier_needs_the_number_of_classes() -> None:
    """Any default would be wrong without an error: outputs beyond it are never predicted."""
    with pytest.raises(TypeError, match="num_classes"):
        Classifier(Given(), Slow)  # type: ignore[call-arg]
