"""Studies of our own. They train the same losses on many units, to separate real differences from chance."""
