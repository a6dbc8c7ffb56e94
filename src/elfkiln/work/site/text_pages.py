"""Texts with numbered lines, each line's number a link to it."""

from __future__ import annotations

from markupsafe import Markup, escape


def numbered(text: str) -> tuple[Markup, int]:
    """Return a text's HTML with an anchor `L<n>` a line, and how many lines it has; every sign of it is inert."""
    # splitlines() would also break at form feeds and the like, which no editor counts as lines.
    lines = text.removesuffix("\n").split("\n")
    # The links stay out of the tab order: thousands of stops would lock a keyboard out of the rest of the page.
    rows = (
        f'<span id="L{number}"><a href="#L{number}" tabindex="-1">{number}</a>{line}\n</span>'
        for number, line in enumerate(str(escape("\n".join(lines))).split("\n"), 1)
    )
    return Markup(f'<pre class="text" tabindex="0"><code>{"".join(rows)}</code></pre>'), len(lines)
