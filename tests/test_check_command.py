"""Words of a check that are refused before anything is trained."""

import pytest

from lockstep.check.__main__ import main


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("devices=1", "devices=1: it takes whole numbers from 2 on; write devices=2."),
        ("strategies=dp", "strategies=dp: it starts no ranks; write strategies=ddp"),
        ("strategies=dpp", "strategies=dpp: there is no such strategy (did you mean ddp?); write strategies=ddp, or"),
        ("steps=few", "steps=few: it takes whole numbers"),
        ("accelerator=gpu", "accelerator=gpu: a check computes on the CPU; write accelerator=cpu."),
        ("step=9", "step=9: a check has no such key; write steps=9."),
        ("steps=10,20", "steps=10,20: it takes one number"),
    ],
)
def test_invalid_input_is_one_sentence(word: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    assert capsys.readouterr().err.startswith(sentence)
