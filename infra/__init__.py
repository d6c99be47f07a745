"""Real machines: Ray clusters, servers, schedules, the doctor and the sizing."""
