"""What a model needs: plans, role tables, containers, and the names they ask for."""
