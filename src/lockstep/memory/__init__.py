"""Memory: the format of a net's tensors (`format`), and allocation and garbage collection in a rank (`allocation`)."""
