"""An earlier place of these names, kept for code and saved settings that use it: now `index.query`."""

from .index.query import (  # noqa: F401
    Answer as Answer,
)
from .index.query import (
    Hit as Hit,
)
from .index.query import (
    as_records as as_records,
)
from .index.query import (
    as_text as as_text,
)
from .index.query import (
    find as find,
)
from .index.query import (
    query_files as query_files,
)
