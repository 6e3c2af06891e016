"""From typed words to a configuration, by Hydra: they are checked and composed, and Hydra's errors become sentences."""
