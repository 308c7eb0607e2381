"""Our losses inside other people's frameworks, a file per framework."""
