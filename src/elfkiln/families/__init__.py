"""Kernel families: finds and renders what lies in generators/ and templates/."""
