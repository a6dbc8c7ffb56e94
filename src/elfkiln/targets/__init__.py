"""Targets: how a rendered generator becomes an ELF, and how such an ELF is opened."""
