"""Numbers from commit to commit: measured, and searched for the commits at which they change."""
