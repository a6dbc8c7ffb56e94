"""The plan layer: a model's plan.json read, refused, turned into artifact names, generated and compared."""
