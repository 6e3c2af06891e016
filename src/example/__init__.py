"""A place for code of your own. Nothing in it knows of Lockstep; `conf/` names it by its import path."""
