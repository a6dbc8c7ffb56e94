"""elfkiln builds the NPU kernel ELFs an inference engine asks for by name, and keeps them by digest."""

__version__ = "0.1.0"
