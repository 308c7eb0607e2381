"""An earlier place of these names, kept for code and saved settings that use it: now `index.export`."""

from .index.export import (  # noqa: F401
    export as export,
)
