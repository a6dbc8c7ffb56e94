"""What elfkiln does: one function a verb, usable from Python."""
