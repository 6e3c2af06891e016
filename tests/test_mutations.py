"""The table of planted bugs fits the tree; `python -m tests.mutations` plants them."""

from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.mutations.table import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_its_text_is_there_once_and_its_test_is_there(mutation: Mutation) -> None:
    assert (ROOT / "src" / "lockstep" / mutation.file).read_text().count(mutation.old) == 1
    file, _, test = mutation.test.partition("::")
    assert f"def {test.partition('[')[0]}" in Path(ROOT / file).read_text()


def test_names_are_theirs_alone() -> None:
    assert not [name for name, count in Counter(mutation.name for mutation in MUTATIONS).items() if count > 1]
