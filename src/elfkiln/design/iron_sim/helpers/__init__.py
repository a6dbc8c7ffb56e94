"""Helpers of the real package's `aie.helpers`."""
