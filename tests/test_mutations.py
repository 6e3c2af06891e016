"""The table of planted bugs fits the tree; `python -m tests.mutations` plants them."""

from tests.conftest import ROOT
from tests.mutations.table import MUTATIONS


def test_each_text_is_in_its_file_once_and_each_test_exists() -> None:
    for mutation in MUTATIONS:
        assert (ROOT / "src" / "lockstep" / mutation.file).read_text().count(mutation.old) == 1, mutation.name
        file, _, test = mutation.test.partition("::")
        assert f"def {test.partition('[')[0]}" in (ROOT / file).read_text(), mutation.name


def test_there_are_a_hundred_with_unique_names() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 100
