"""Loads a shared object from a private copy: every load has state of its own, whatever path it came from."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import tempfile
import weakref
from typing import Any

from elfkiln.errors import Differs, brief, refusal


class PrivateLibrary:
    """A shared object that nothing else in the process shares; `close` (or the garbage collector) unloads it."""

    def __init__(self, what: str, data: bytes) -> None:
        """Load the bytes; raises `Differs`, naming `what`, when the dynamic loader refuses them.

        The loader takes equal names and equal files for one object. An anonymous file is a file of its own, and its
        name is its own for as long as the descriptor is open.
        """
        self.what = what
        descriptor = _anonymous_file()
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            self._library = ctypes.CDLL(f"/proc/self/fd/{descriptor}", mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            os.close(descriptor)
            raise Differs(f"{what}: the dynamic loader refuses it ({brief(error)})") from error
        self.close = weakref.finalize(self, _unload, self._library._handle, descriptor)

    def function(self, name: str, result: Any, *parameters: Any) -> Any:
        """Return an exported function with its ctypes types; raises `Refused` after `close`."""
        if not self.close.alive:
            raise refusal(self.what, expected="a loaded ELF", found="one that was closed")
        function = self._library[name]
        function.argtypes = list(parameters)
        function.restype = result
        return function


def _anonymous_file() -> int:
    try:
        return os.memfd_create("elfkiln-sim", os.MFD_CLOEXEC)
    except OSError:  # a sandbox may refuse it
        descriptor, name = tempfile.mkstemp(prefix="elfkiln-sim-")
        os.unlink(name)
        return descriptor


def _unload(handle: int, descriptor: int) -> None:
    _ctypes.dlclose(handle)
    os.close(descriptor)
