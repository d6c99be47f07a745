"""Encoders: features of images and tokens of captions become vectors of unit length in the joint space."""
