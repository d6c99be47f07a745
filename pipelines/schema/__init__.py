"""What the classes of the configuration are built from: field types, aggregators, encoders and losses."""
