"""Captions that are wrong in one place: the attacks of UniVSE and of VSE-C."""

# Part of the fingerprints of what reads adversarial captions: raise it when the same captions and seed give others.
VERSION = 4
