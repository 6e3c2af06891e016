"""The files that a run leaves, and what is computed from them."""
