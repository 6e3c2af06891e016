raise ImportError("no luck today")
