"""The basis of every stage: its contract, the connection to Ray, progress, locks and the command line."""
