"""Measurements apart from the job: the int8 cache's arithmetic, two runs compared, published tables cross-checked."""
