"""The pipeline: a script for each command, and a folder for each job that they do."""
