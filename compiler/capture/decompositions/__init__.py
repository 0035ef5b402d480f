"""Operators that are recorded as several others, or kept whole where torch would take them apart."""
