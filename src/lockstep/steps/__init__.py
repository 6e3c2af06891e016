"""The steps of a module: the weight of its loss, the values that it logs over ranks, its metrics."""
