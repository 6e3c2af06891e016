"""Exact sums: of batches (`running`), over ranks (`step_sums`), and seconds (`phases`)."""
