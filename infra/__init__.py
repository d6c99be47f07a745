"""How the pipeline runs for real: Ray clusters, servers, schedules."""
