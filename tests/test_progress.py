from lockstep.progress import epoch_line


def test_the_line_of_an_epoch() -> None:
    line = epoch_line(3, 20, {"val/acc": 0.97222, "train/loss": 0.12344}, 0.314)
    assert line == "epoch 3/20  train/loss 0.1234  val/acc 0.9722  0.31 s"
