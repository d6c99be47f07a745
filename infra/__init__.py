"""Real machines: Ray clusters, servers, schedules, and the doctor."""
