from lockstep.batch_math import batch_count, window_samples


def test_ten_samples_in_batches_of_four_are_two_full_ones_and_a_ragged_one() -> None:
    assert batch_count(10, 4) == 3
    assert batch_count(10, 4, drop_last=True) == 2
    assert batch_count(8, 4) == batch_count(8, 4, drop_last=True) == 2


def test_a_window_averages_over_the_samples_it_really_holds() -> None:
    # 10 samples, batches 4 4 2, two batches a step: steps of 8 and of 2 samples
    assert [window_samples(10, 4, 2, batch) for batch in range(3)] == [8, 8, 2]
    # 13 samples, batches 4 4 4 1, three a step: steps of 12 and of 1
    assert [window_samples(13, 4, 3, batch) for batch in range(4)] == [12, 12, 12, 1]
    assert [window_samples(10, 4, 1, batch) for batch in range(3)] == [4, 4, 2]
    assert batch_count(batch_count(10, 4), 2) == 2
    assert batch_count(batch_count(13, 4), 3) == 2


def test_a_dropped_batch_is_in_no_window() -> None:
    # 14 samples, batches 4 4 4 (2 dropped), two a step: steps of 8 and of 4
    assert [window_samples(14, 4, 2, batch, drop_last=True) for batch in range(3)] == [8, 8, 4]
    assert batch_count(batch_count(14, 4, drop_last=True), 2) == 2
