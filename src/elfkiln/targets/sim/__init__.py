"""Target sim: turns a design into C that executes it, and that C into an ELF shared object."""
