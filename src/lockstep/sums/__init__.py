"""An objective's sums: by batches (`running`), over ranks (`measured`, `step_counts`); seconds by `phases`."""
