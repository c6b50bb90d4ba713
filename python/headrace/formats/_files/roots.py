"""How the root of an index begins whose files are not read as they lie."""

from __future__ import annotations

DECODED = "decoded://"
"""Files may be compressed as a whole."""

ROW_GROUPS = "rowgroups://"
"""Objects are row groups that a reader decodes."""
