"""Tables on the terminal line up."""

from lockstep.text_table import columns_text, figures, fitted_text


def test_columns_line_up() -> None:
    table = columns_text(["job", "seconds"], [["a", "1.25"], ["longer", "12.5"]])
    assert table == "job     seconds\na          1.25\nlonger     12.5"


def test_three_figures_and_no_powers_of_ten() -> None:
    assert [figures(value) for value in (None, 0.0, 0.012345, 1.2345, 123.45, 12345.0)] == [
        *("–", "0", "0.0123", "1.23", "123", "12345")
    ]


def test_a_table_that_does_not_fit_goes_below_itself() -> None:
    headings, cells = ["work", "by", "seconds", "goal"], [["a", "me", "1 s", "–"], ["", "you", "2 s", "≤ 2 s"]]
    assert fitted_text(headings, cells, None, 2) == columns_text(headings, cells, 2)
    assert fitted_text(headings, cells, 40, 2) == columns_text(headings, cells, 2)
    assert fitted_text(headings, cells, 15, 2).splitlines() == [
        *("a", "  me", "    seconds: 1 s", "  you", "    seconds: 2 s", "    goal: ≤ 2 s")
    ]
