"""Studies of our own: the same losses on many units, so that what differs between units can be told from chance."""
