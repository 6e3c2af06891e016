"""What the user's own code says, read and not run."""

import ast
import inspect
import textwrap
from typing import Any


def tree_of(own: Any) -> ast.Module | None:
    """Of a class or a function; None where its source is nowhere."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(own)))
    except (OSError, TypeError, SyntaxError):
        return None
