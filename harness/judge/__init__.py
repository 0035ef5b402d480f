"""Whether two runs are the same: the rule of numbers, field by field, the float64 run, and the known failures."""
