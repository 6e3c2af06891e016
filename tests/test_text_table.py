"""Tables on the terminal line up."""

from lockstep.text_table import columns_text, figures


def test_columns_line_up() -> None:
    table = columns_text(["job", "seconds"], [["a", "1.25"], ["longer", "12.5"]])
    assert table == "job     seconds\na          1.25\nlonger     12.5"


def test_three_figures_and_no_powers_of_ten() -> None:
    assert [figures(value) for value in (None, 0.0, 0.012345, 1.2345, 123.45, 12345.0)] == [
        *("–", "0", "0.0123", "1.23", "123", "12345")
    ]
