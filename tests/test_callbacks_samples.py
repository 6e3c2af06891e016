"""Images of a classification, collected batch by batch."""

import torch

from lockstep.engine.callbacks.samples import classified, confidence_of_errors, keep_highest

SCORES = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 3.0]]).log_softmax(1)


def test_errors_are_wrong_predictions_of_classes() -> None:
    """A right one, an ignored target, and a wrong one of confidence e³ / (1 + e³)."""
    columns = classified([torch.zeros(3, 1, 2, 2)], torch.tensor([0, -100, 0]), SCORES)
    assert columns is not None
    torch.testing.assert_close(confidence_of_errors(columns), torch.tensor([-1.0, -1.0, 0.9525741]))


def test_the_highest_of_all_batches_are_kept() -> None:
    columns: tuple[torch.Tensor, ...] = ()
    for values in ([3.0, 9.0], [5.0, 1.0]):
        columns = keep_highest(columns, (torch.tensor(values), torch.tensor(values)), 2)
    assert [column.tolist() for column in columns] == [[9.0, 5.0]] * 2


def test_other_batches_have_no_images() -> None:
    images, targets = torch.zeros(3, 1, 2, 2), torch.zeros(3, dtype=torch.long)
    assert classified([images.flatten(1)], targets, SCORES) is None
    assert classified([images.expand(3, 4, 2, 2)], targets, SCORES) is None
    assert classified([images], targets, None) is None
