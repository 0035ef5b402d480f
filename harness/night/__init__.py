"""A whole night in a stated time: what is run, in which share of it, and the page in the morning."""
