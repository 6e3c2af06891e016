"""Tables on the terminal line up."""

from lockstep.text_table import metrics_text


def test_table_lines_up() -> None:
    assert metrics_text({"a": 1, "long_name": 0.25}) == "  a          1\n  long_name  0.25"
