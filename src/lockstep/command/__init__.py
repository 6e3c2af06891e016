"""From typed words to a configuration, by Hydra: checks, composition, and Hydra's errors as sentences."""
