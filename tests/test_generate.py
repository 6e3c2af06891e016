"""`python -m lockstep.generate`, and experiment=char_lm."""

from pathlib import Path

import pytest
import torch

import lockstep
from lockstep.datamodules import Text
from lockstep.generate import continued, generate, main
from tests.conftest import IN_PROCESS

pytestmark = IN_PROCESS
Capture = pytest.CaptureFixture[str]
QUIET = ("logger=none", "threads=1", "max_epochs=1", "strategy.in_process=true", "trainer.limit_train_batches=3")
SMALL = ("model.net.width=8", "model.net.layers=1", "data.length=8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    lockstep.run([*QUIET, "experiment=char_lm", *SMALL, f"hydra.run.dir={folder / 'text'}"])
    lockstep.run([*QUIET, "model.net.hidden=[8]", f"hydra.run.dir={folder / 'digits'}"])
    return folder


def test_a_text_goes_on_by_the_seed(runs: Path) -> None:
    """Longer than a sample, with the same characters for the same seed."""
    texts = [continued(str(runs / "text"), "MARCIUS:\nThe gods", 30, 1.0, seed) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    assert [text[:17] for text in texts] == ["MARCIUS:\nThe gods"] * 3
    assert [len(text) for text in texts] == [47] * 3
    assert {*texts[0]} <= {*Text().characters}


def test_each_token_is_drawn_by_the_logits_of_the_window_before_it() -> None:
    def next_numbers(tokens: torch.Tensor) -> torch.Tensor:
        """Return logits whose likeliest is the sum of the tokens, and then the next one."""
        logits = torch.zeros(*tokens.shape, 9)
        logits[0, -1, int(tokens.sum()) % 9], logits[0, -1, (int(tokens.sum()) + 1) % 9] = 3.0, 2.0
        return logits

    assert generate(next_numbers, torch.tensor([[1, 2]]), 2, 4, 0.0).tolist() == [[1, 2, 3, 5, 8, 4]]
    torch.manual_seed(0)
    counts = [generate(next_numbers, torch.tensor([[1, 2]]), 2, 1, 0.5)[0, 2].item() for _ in range(1000)]
    expected = (torch.tensor([3.0, 2.0] + [0.0] * 7) / 0.5).softmax(0)
    assert [counts.count(token) / 1000 for token in (3, 4)] == pytest.approx(expected[:2].tolist(), abs=0.05)


@pytest.mark.parametrize(
    ("run", "words", "sentence"),
    [
        ("text", ["7"], "text=7: the characters that the net has learned are \"\\n !',-"),
        ("text", ["a", "tokens=0"], "tokens=0: it must be 1 or more; write tokens=400."),
        ("text", ["a", "temperature=-1"], "temperature=-1.0: it must be 0 or more; write temperature=0.8."),
        ("text", ["a", "--tokens", "4"], "--tokens: keys have no dashes; write tokens=VALUE."),
        ("text", [], 'TEXT is missing; write python -m lockstep.generate RUN "TEXT".'),
        ("digits", ["a"], "digits: its data, Digits, is no text; write a run with data=text."),
        ("none", ["a"], "there is no checkpoint: "),
    ],
)
def test_invalid_input_is_refused_in_one_line(
    run: str, words: list[str], sentence: str, runs: Path, capsys: Capture
) -> None:
    assert main([str(runs / run), *words]) == 2
    ended = capsys.readouterr()
    assert ended.out == ""
    assert ended.err.count("\n") == 1
    assert sentence in ended.err
