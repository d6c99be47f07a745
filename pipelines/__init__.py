"""The verbs, a file each (full, extract, train, evaluate, search, serve ...), and what they share."""
