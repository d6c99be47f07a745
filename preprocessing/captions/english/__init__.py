"""The English pipeline that ships with the package: how it is trained, and the trained model."""
