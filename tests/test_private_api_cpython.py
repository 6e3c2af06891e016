"""A CPython without the private names that are used here: ranks are spawned, and nothing fails."""

import multiprocessing.forkserver
import pdb  # noqa: T100  # its state, not its prompt
from types import SimpleNamespace

import pytest

from lockstep.launch.forkserver import ensure_forkserver, start_forkserver, start_method
from lockstep.private_api import cpython


@pytest.mark.parametrize("name", [None, *cpython.STATE])
def test_without_the_fork_servers_state_ranks_are_spawned(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """`test_where_there_is_no_fork_server_ranks_spawn` runs such ranks."""
    assert start_method() == "forkserver"
    if name is None:
        monkeypatch.delattr(multiprocessing.forkserver, "_forkserver")
    else:
        other = SimpleNamespace(**{own: None for own in cpython.STATE if own != name})
        monkeypatch.setattr(multiprocessing.forkserver, "_forkserver", other)
    assert start_method() == "spawn"
    start_forkserver("lockstep.no_such_engine")
    ensure_forkserver()
    cpython.kill_forkserver()


def test_pdbs_handler_is_forgotten_where_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdb.Pdb, "_previous_sigint_handler", print)
    cpython.forget_interrupt_handler()
    assert pdb.Pdb._previous_sigint_handler is None  # type: ignore[attr-defined]
    monkeypatch.delattr(pdb.Pdb, "_previous_sigint_handler")
    cpython.forget_interrupt_handler()
    assert not hasattr(pdb.Pdb, "_previous_sigint_handler")
