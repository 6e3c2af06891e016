"""Bugs that are planted on purpose into copies of the tree, each with the test that has to see it.

`python -m tests.mutations` plants all of them, one after the other; it is no part of `pytest`. A bug that lives means
that the test proves less than its name says.
"""
