"""`python -m lockstep.check`: whether N ranks compute what one does, for a module and its data; nothing imports it."""
