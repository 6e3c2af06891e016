"""A place for code of your own. Nothing in it imports Lockstep; YAML files in `conf/` name it by its import path."""
