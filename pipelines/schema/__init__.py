"""Building blocks of the configuration: field types, aggregators, encoders and losses."""
