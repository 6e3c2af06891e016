"""An objective's sums: by batches (`running`), over all ranks to metrics (`measured`) and curves (`curve`).

Seconds by `phases`."""
