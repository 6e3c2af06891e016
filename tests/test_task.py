import math

import torch

from lockstep import task


def test_classification_sums_by_hand() -> None:
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]], dtype=torch.float64)  # probabilities ½ ½ and ¾ ¼
    targets = torch.tensor([0, 1])
    judged = task.Classification()
    loss = judged.loss_sum(logits, targets)
    torch.testing.assert_close(loss, torch.tensor(math.log(2) + math.log(4), dtype=torch.float64))
    # the first row's argmax is class 0 (the first of equals), the second's too: one of two is right
    assert task.sums(judged, loss, logits, targets).tolist() == [loss.item(), 1, 2]


def test_regression_sums_by_hand() -> None:
    outputs, targets = torch.tensor([[1.0], [5.0]]), torch.tensor([[3.0], [4.0]])
    judged = task.Regression()
    loss = judged.loss_sum(outputs, targets)
    assert task.sums(judged, loss, outputs, targets).tolist() == [4 + 1, 0, 2]


def test_an_empty_batch_adds_nothing() -> None:
    judged = task.Classification()
    outputs, targets = torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)
    assert task.sums(judged, judged.loss_sum(outputs, targets), outputs, targets).tolist() == [0, 0, 0]


def test_sums_of_unequal_batches_divide_once() -> None:
    totals = torch.tensor([2.0, 1.0, 1.0]) + torch.tensor([1.0, 2.0, 3.0])
    assert task.means("val", totals, classes=2) == {"val/loss": 0.75, "val/acc": 0.75}
    assert task.means("val", totals, classes=0) == {"val/loss": 0.75}
    mean_of_means = (2.0 / 1 + 1.0 / 3) / 2
    assert mean_of_means != 0.75
