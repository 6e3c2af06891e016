"""Exact sums of batches and ranks (`running`), and seconds (`phases`)."""
