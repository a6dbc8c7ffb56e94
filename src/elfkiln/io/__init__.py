"""Bytes without the domain: atomic files, bounded and strict readers, private folders."""
