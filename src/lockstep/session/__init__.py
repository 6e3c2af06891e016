"""What both engines do around a module and its data, by one object: `session.Session`."""
