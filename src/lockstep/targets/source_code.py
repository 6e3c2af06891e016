"""The syntax tree of the user's code."""

import ast
import inspect
import textwrap
from typing import Any


def tree_of(definition: Any) -> ast.Module | None:
    """Return the syntax tree of a class or a function, or None if its source is not available."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(definition)))
    except (OSError, TypeError, SyntaxError):
        return None
