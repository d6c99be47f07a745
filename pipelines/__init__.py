"""The verbs (extract, train, evaluate, register, full, search) and what they share: configuration, tracking, Ray."""
