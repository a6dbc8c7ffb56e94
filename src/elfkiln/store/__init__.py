"""Content-addressed blobs, artifacts, recipes, and the registry that names them."""
