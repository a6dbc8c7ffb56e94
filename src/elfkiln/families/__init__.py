"""Kernel families: finds and renders the generators and templates."""
