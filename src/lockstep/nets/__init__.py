"""The nets: pure modules, built from the data's shape alone; they know no rank, device, logger or engine."""
