"""Exact sums: over batches and ranks (`running`), and seconds (`phases`)."""
