"""Exact sums: of batches (`running`), over ranks (`epoch_metrics`, `step_counts`), and seconds (`phases`)."""
