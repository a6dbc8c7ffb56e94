"""What a person sees of a build: a live line on a terminal, one plain line per step elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Protocol, TextIO

from elfkiln.io.terminal import plain


class _Live(Protocol):
    def update(self, done: int, title: str) -> None: ...
    def print(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Progress:
    """Prints the headline, a line or a live count per recipe, and the closing summary. Safe to call from threads."""

    def __init__(self, stream: TextIO | None, *, live: bool | None = None) -> None:
        """Print to `stream` (None: nowhere); `live` forces or forbids the terminal form (default: ask the stream)."""
        self._stream = stream
        self._wants_live = stream is not None and (stream.isatty() if live is None else live)
        self._lock = threading.Lock()
        self._total = 0
        self._done = 0
        self._live: _Live | None = None
        self._running: dict[str, str] = {}

    @classmethod
    def silent(cls) -> Progress:
        """Return a progress that prints nothing."""
        return cls(None)

    @classmethod
    def console(cls) -> Progress:
        """Return a progress on standard output."""
        return cls(sys.stdout)

    def headline(self, text: str) -> None:
        """Print the first line of a build."""
        self._line(text)

    def start(self, total: int) -> None:
        """Take the number of recipes; nothing is printed yet."""
        self._total, self._done = total, 0

    def phase(self, title: str, name: str) -> None:
        """Say what work on a recipe has come to (shown on a terminal only).

        It is one of `render`, `design`, `lint`, `compile`, `check`, `store`.
        """
        with self._lock:
            self._running[title] = name
            if self._wants_live and self._live is None:
                self._live = _RichLive(self._stream, self._total)
            self._show()

    def _show(self) -> None:
        if self._live is not None:
            self._live.update(self._done, "; ".join(f"{name} {title}".strip() for title, name in self._running.items()))

    def begin(self, title: str) -> None:
        """Say that work on something begins that has no phases (shown on a terminal only)."""
        with self._lock:
            self._running.clear()
        self.phase(title, "")

    def done(self, title: str, *, built: bool, notes: Sequence[str] = ()) -> None:
        """Count a recipe as done; a built one is named, with what its generator notes of it."""
        with self._lock:
            self._done += 1
            self._running.pop(title, None)
            if built:
                self._print(f"[{self._done}/{self._total}] built {title}")
                for note in notes:
                    self._print(f"note: {title}: {note}")
            self._show()

    def failed(self, title: str, reason: str) -> None:
        """Name a recipe that failed, with its one-line reason."""
        with self._lock:
            self._done += 1
            self._running.pop(title, None)
            self._show()
            self._print(f"[{self._done}/{self._total or self._done}] FAILED {title}: {reason}")

    def stop(self) -> None:
        """End the live line, whatever ended the build: the terminal gets its cursor back."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def close(self, summary: str, failures: Sequence[tuple[str, str]]) -> None:
        """End the live line, list what failed and print the summary."""
        self.stop()
        with self._lock:
            for key, reason in failures:
                self._print(f"failed: {key}: {reason}")
            self._print(summary)

    def _line(self, text: str) -> None:
        with self._lock:
            self._print(text)

    def _print(self, text: str) -> None:
        try:
            if self._live is not None:
                self._live.print(plain(text))
            elif self._stream is not None:
                print(text, file=self._stream, flush=True)
        except BrokenPipeError:
            # The reader has gone; the build goes on and its exit code tells.
            self._stream = None


class _RichLive:
    """The terminal's progress bar; rich is imported only where there is a terminal."""

    def __init__(self, stream: TextIO | None, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self._bar = Bar(*columns, console=Console(file=getattr(stream, "raw", stream)), transient=True)
        self._task = self._bar.add_task("", total=total)
        self._bar.start()

    def update(self, done: int, title: str) -> None:
        self._bar.update(self._task, completed=done, description=title)

    def print(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        self._bar.stop()
