"""The search service: what answers, what guards it, and its page."""
