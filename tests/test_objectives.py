"""What an objective measures, worked out by hand; sums over batches and ranks; one entry is a metric everywhere."""

import math

import pytest
import torch
from torch import nn

from lockstep.objectives import FromConfusion, Mean, Objective, objective_of
from lockstep.objectives.tasks import (
    correct,
    cross_entropy,
    language_modelling,
    macro_f1,
    reconstruction_error,
    squared_error,
)
from lockstep.sums.running import EvaluationSums, RunningSums, batch_stats, confusion, stack_stats

TWO, REGRESSION, LANGUAGE_MODELLING = objective_of("auto", 2), objective_of("auto", 0), language_modelling()


def test_classification_sums_by_hand() -> None:
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]], dtype=torch.float64)  # probabilities ½ ½ and ¾ ¼
    targets = torch.tensor([0, 1])
    loss = TWO.loss_sum(logits, targets)
    torch.testing.assert_close(loss, torch.tensor(math.log(2) + math.log(4), dtype=torch.float64))
    # the first row's argmax is class 0 (the first of equals), the second's too: one of two is right
    assert TWO.sums == ("loss", "samples", "acc")
    assert stack_stats(TWO, [batch_stats(TWO, loss, logits, targets)]).tolist() == [[loss.item(), 2, 1]]


def test_an_empty_batch_adds_nothing() -> None:
    outputs, targets = torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)
    stats = batch_stats(TWO, TWO.loss_sum(outputs, targets), outputs, targets)
    assert stack_stats(TWO, [stats]).tolist() == [[0, 0, 0]]


def test_running_sums_add_one_batch_after_the_other_whenever_someone_looks() -> None:
    """In float64 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last bit: the order is that of the batches."""
    batches = [(loss, 2, 1.0) for loss in (0.1, 0.2, 0.3)]
    once, often = RunningSums(TWO), RunningSums(TWO, torch.zeros(3, dtype=torch.float64))
    for batch in batches:
        once.add(batch)
        often.add(batch)
        assert often.sums is not None
    assert once.sums.tolist() == often.sums.tolist() == [0.1 + 0.2 + 0.3, 6.0, 3.0]
    assert RunningSums(TWO).sums.tolist() == [0, 0, 0]


def evaluated(objective: Objective, stats: tuple[float, ...], targets: list[int], predicted: list[int]) -> torch.Tensor:
    """What a rank has evaluated that took `targets` for `predicted`."""
    sums = EvaluationSums(objective, torch.device("cpu"))
    sums.add(stats, torch.eye(objective.classes)[torch.tensor(predicted)], torch.tensor(targets))
    return sums.totals


def test_ranks_add_one_row() -> None:
    """Two ranks, two classes: 1 of 2 and 2 of 3 right. F1 is 2·2/(2·2+1+1) of class 0 and 2·1/(2·1+1+1) of class 1."""
    first = evaluated(TWO, (1.0, 2, 1), [0, 0], [0, 1])
    second = evaluated(TWO, (2.0, 3, 2), [0, 1, 1], [0, 0, 1])
    metrics, counts = TWO.metrics("val", first + second), TWO.confusion_of(first + second)
    assert counts.tolist() == [[2, 1], [1, 1]]
    assert metrics == {"val/loss": 3 / 5, "val/acc": 3 / 5, "val/f1": pytest.approx((4 / 6 + 2 / 4) / 2, abs=1e-15)}
    assert REGRESSION.metrics("val", torch.tensor([2.0, 4], dtype=torch.float64)) == {"val/loss": 0.5}
    totals = torch.tensor([2.0, 1.0, 1.0]) + torch.tensor([1.0, 3.0, 2.0])
    assert TWO.metrics("train", totals) == {"train/loss": 0.75, "train/acc": 0.75}


def test_an_entry_is_a_name_a_sum_and_a_direction() -> None:
    """Any number of entries, in any order: of each sort one that is new, in front of and behind those there are."""
    entries = (
        FromConfusion("taken_for_0", "min", lambda counts: float(counts[:, 0].sum())),
        Mean("acc", "max", correct),
        Mean("margin", "min", lambda outputs, _targets: (outputs.amax(1) - outputs.amin(1)).sum()),
    )
    objective = Objective(cross_entropy, entries, classes=2, monitor="acc")
    assert objective.sums == ("loss", "samples", "acc", "margin")
    assert objective.names("train") == ["train/loss", "train/acc", "train/margin"]
    assert objective.names("test") == ["test/loss", "test/taken_for_0", "test/acc", "test/margin"]
    outputs, targets = torch.tensor([[0.0, 3.0], [2.0, 0.0], [4.0, 0.0]]), torch.tensor([1, 0, 1])
    stats = batch_stats(objective, torch.tensor(6.0), outputs, targets)
    assert stats == (6.0, 3, 2, 9.0)
    sums = EvaluationSums(objective, torch.device("cpu"))
    sums.add(stats, outputs, targets)
    metrics = {"val/loss": 2.0, "val/taken_for_0": 2.0, "val/acc": 2 / 3, "val/margin": 3.0}
    assert objective.metrics("val", sums.totals) == metrics
    assert {name: objective.better(name) for name in metrics} == {**dict.fromkeys(metrics, "min"), "val/acc": "max"}


def test_a_row_of_several_outputs_counts_their_mean() -> None:
    """As nn.MSELoss does: (1 + 4) / 2 and (9 + 0) / 2; in any shape."""
    outputs, targets = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.0, 0.0], [0.0, 4.0]])
    loss = squared_error(outputs, targets)
    assert loss.item() == 7
    assert loss.item() / 2 == nn.MSELoss()(outputs, targets).item()
    assert squared_error(torch.zeros(2, 2, 2), torch.tensor([1.0, 3.0])[:, None, None].expand(2, 2, 2)).item() == 10


def test_confusion_and_macro_f1_by_hand() -> None:
    """Three classes; true 0 0 0 1 1 2, taken for 0 0 1 1 2 2. The fourth class neither occurs nor is predicted.

    F1 of 0: 2·2 / (3 + 2) = 4/5; of 1: 2·1 / (2 + 2) = 1/2; of 2: 2·1 / (1 + 2) = 2/3. Mean: 59/90. Of data with two
    classes the others are none: a column of their own.
    """
    targets = torch.tensor([0, 0, 0, 1, 1, 2])
    outputs = torch.eye(4)[torch.tensor([0, 0, 1, 1, 2, 2])]
    counts = confusion(outputs, targets, classes=4)
    assert counts.tolist() == [[2, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
    assert macro_f1(counts) == pytest.approx(59 / 90, abs=1e-15)
    none = confusion(outputs[:0], targets[:0], classes=4)
    assert none.tolist() == [[0] * 5] * 4
    counts = confusion(torch.eye(4)[torch.tensor([0, 0, 1, 1, 3])], targets[:5], classes=2)
    assert counts.tolist() == [[2, 1, 0], [0, 1, 1]]
    assert macro_f1(counts) == pytest.approx((4 / 5 + 1 / 2) / 2, abs=1e-15)


def test_a_class_for_each_element_by_hand() -> None:
    """Two samples of two parts and two classes: a sample's loss and accuracy are means over its parts."""
    logits = torch.tensor([[[math.log(3), 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, math.log(3)]]], dtype=torch.float64)
    targets = torch.tensor([[1, 0], [0, 1]])  # probabilities ¼ and ½; ½ and ¾
    loss = cross_entropy(logits, targets)
    assert loss.item() == pytest.approx((math.log(4) + math.log(2)) / 2 + (math.log(2) + math.log(4 / 3)) / 2)
    assert correct(logits, targets).item() == 1 / 2 + 2 / 2
    assert confusion(logits, targets, classes=2).tolist() == [[2, 0, 0], [1, 1, 0]]


def test_language_modelling_by_hand() -> None:
    """Two sequences of two tokens: probabilities ½ and ¾; ¼ and ½, of which the first of equals is taken."""
    logits = torch.tensor([[[0.0, 0.0], [math.log(3), 0.0]], [[math.log(3), 0.0], [0.0, 0.0]]], dtype=torch.float64)
    tokens = torch.tensor([[0, 0], [1, 1]])
    loss = LANGUAGE_MODELLING.loss_sum(logits, tokens)
    stats = batch_stats(LANGUAGE_MODELLING, loss, logits, tokens)
    first, second = (math.log(2) + math.log(4 / 3)) / 2, (math.log(4) + math.log(2)) / 2
    assert stats[0] == pytest.approx(first + second)
    assert stats[1:] == (2, 1.0)
    metrics = LANGUAGE_MODELLING.metrics("train", stack_stats(LANGUAGE_MODELLING, [stats])[0])
    assert metrics == {
        "train/loss": pytest.approx((first + second) / 2),
        "train/acc": 0.5,
        "train/perplexity": pytest.approx((2 * 4 / 3 * 4 * 2) ** (1 / 4)),  # of the four tokens, their geometric mean
    }
    assert LANGUAGE_MODELLING.metrics("val", torch.tensor([1e6, 1.0, 0.0]))["val/perplexity"] == math.inf


def test_a_reconstruction_may_have_another_shape() -> None:
    image, row = torch.arange(8.0).view(2, 1, 2, 2), torch.zeros(2, 4)
    assert reconstruction_error(row, image).item() == (0 + 1 + 4 + 9) / 4 + (16 + 25 + 36 + 49) / 4
