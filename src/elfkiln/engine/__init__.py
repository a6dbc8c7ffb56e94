"""What the inference engine says: names, legality of geometries, layouts, its words and figures."""
