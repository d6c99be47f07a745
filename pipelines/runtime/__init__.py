"""What every stage stands on: its contract, the connection to Ray, progress, locks and the command line."""
