"""Tables: files of rows are read here and nowhere else, and written; aligned lines for a terminal, and Markdown."""

from .printed import aligned as aligned
from .printed import duration as duration
from .printed import markdown as markdown
