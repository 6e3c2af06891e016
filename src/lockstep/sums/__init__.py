"""A task's sums: added up batch by batch (`running`), over all ranks to metrics (`measured`) and curves (`curve`)."""
