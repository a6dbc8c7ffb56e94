"""The catalogue: a static site of what the registry, the store and the plans say, and of docs/."""
