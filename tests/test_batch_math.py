from lockstep.batch_math import batch_count


def test_ten_samples_in_batches_of_four_are_two_full_ones_and_a_ragged_one() -> None:
    assert batch_count(10, 4) == 3
    assert batch_count(10, 4, drop_last=True) == 2
    assert batch_count(8, 4) == batch_count(8, 4, drop_last=True) == 2
