"""Which values backward computes again, draws again, or fetches from the host, and what that costs."""
