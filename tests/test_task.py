import math

import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn

from lockstep import task


def test_classification_sums_by_hand() -> None:
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]], dtype=torch.float64)  # probabilities ½ ½ and ¾ ¼
    targets = torch.tensor([0, 1])
    judge = task.Classification()
    loss = judge.loss_sum(logits, targets)
    torch.testing.assert_close(loss, torch.tensor(math.log(2) + math.log(4), dtype=torch.float64))
    # the first row's argmax is class 0 (the first of equals), the second's too: one of two is right
    assert task.stack_stats([task.batch_stats(judge, loss, logits, targets)]).tolist() == [[loss.item(), 1, 2]]


def test_regression_sums_by_hand() -> None:
    outputs, targets = torch.tensor([[1.0], [5.0]]), torch.tensor([[3.0], [4.0]])
    judge = task.Regression()
    loss = judge.loss_sum(outputs, targets)
    assert task.stack_stats([task.batch_stats(judge, loss, outputs, targets)]).tolist() == [[4 + 1, 0, 2]]


def test_an_empty_batch_adds_nothing() -> None:
    judge = task.Classification()
    outputs, targets = torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)
    stats = task.batch_stats(judge, judge.loss_sum(outputs, targets), outputs, targets)
    assert task.stack_stats([stats]).tolist() == [[0, 0, 0]]


def test_a_tally_adds_one_batch_after_the_other_whenever_someone_looks() -> None:
    """In float64 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last bit: the order is that of the batches."""
    batches = [task.BatchStats(loss, 1.0, 2) for loss in (0.1, 0.2, 0.3)]
    once, often = task.RunningSums(), task.RunningSums(torch.zeros(3, dtype=torch.float64))
    for batch in batches:
        once.add(batch)
        often.add(batch)
        assert often.sums is not None
    assert once.sums.tolist() == often.sums.tolist() == [0.1 + 0.2 + 0.3, 3.0, 6.0]
    assert task.RunningSums().sums.tolist() == [0, 0, 0]


def test_what_ranks_evaluated_is_added_in_one_row() -> None:
    """Two ranks, two classes: 1 of 2 and 2 of 3 right. F1 is 2·2/(2·2+1+1) of class 0 and 2·1/(2·1+1+1) of class 1."""
    first = task.evaluation_sums(torch.tensor([1.0, 1, 2], dtype=torch.float64), torch.tensor([[1, 1], [0, 0]]))
    second = task.evaluation_sums(torch.tensor([2.0, 2, 3], dtype=torch.float64), torch.tensor([[1, 0], [1, 1]]))
    metrics, counts = task.evaluation_metrics("val", first + second, classes=2)
    assert counts.tolist() == [[2, 1], [1, 1]]
    assert metrics == {"val/loss": 3 / 5, "val/acc": 3 / 5, "val/f1": pytest.approx((4 / 6 + 2 / 4) / 2, abs=1e-15)}
    regression, _ = task.evaluation_metrics("val", torch.tensor([2.0, 0, 4], dtype=torch.float64), classes=0)
    assert regression == {"val/loss": 0.5}


def test_sums_of_unequal_batches_divide_once() -> None:
    totals = torch.tensor([2.0, 1.0, 1.0]) + torch.tensor([1.0, 2.0, 3.0])
    assert task.means("val", totals, classes=2) == {"val/loss": 0.75, "val/acc": 0.75}
    assert task.means("val", totals, classes=0) == {"val/loss": 0.75}


def test_a_row_of_several_outputs_counts_their_mean() -> None:
    """As nn.MSELoss does: (1 + 4) / 2 and (9 + 0) / 2."""
    outputs, targets = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.0, 0.0], [0.0, 4.0]])
    loss = task.Regression().loss_sum(outputs, targets)
    assert loss.item() == 7
    assert loss.item() / 2 == nn.MSELoss()(outputs, targets).item()


def test_confusion_and_macro_f1_by_hand() -> None:
    """Three classes; true 0 0 0 1 1 2, taken for 0 0 1 1 2 2. The fourth class neither occurs nor is predicted.

    F1 of 0: 2·2 / (3 + 2) = 4/5; of 1: 2·1 / (2 + 2) = 1/2; of 2: 2·1 / (1 + 2) = 2/3. Mean: 59/90.
    """
    targets = torch.tensor([0, 0, 0, 1, 1, 2])
    outputs = torch.eye(4)[torch.tensor([0, 0, 1, 1, 2, 2])]
    counts = task.confusion(outputs, targets, classes=4)
    assert counts.tolist() == [[2, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert task.macro_f1(counts) == pytest.approx(59 / 90, abs=1e-15)
    none = task.confusion(outputs[:0], targets[:0], classes=4)
    assert none.tolist() == [[0] * 4] * 4


def test_macro_f1_is_that_of_scikit_learn_and_of_no_mean_of_shards() -> None:
    generator = torch.Generator().manual_seed(3)
    targets = torch.randint(0, 5, (999,), generator=generator)
    outputs = torch.randn(999, 10, generator=generator) + 2 * torch.eye(10)[targets]
    shards = [task.confusion(outputs[rank::3], targets[rank::3], classes=10) for rank in range(3)]
    ours = task.macro_f1(sum(shards[1:], start=shards[0]))
    theirs = f1_score(targets, outputs.argmax(1), average="macro")
    assert ours == pytest.approx(theirs, abs=1e-12)
    assert abs(sum(map(task.macro_f1, shards)) / 3 - ours) > 1e-4, "the mean over ranks is another number"
