"""Exact sums: of batches (`running`), over ranks (`epoch_metrics`), and seconds (`phases`)."""
