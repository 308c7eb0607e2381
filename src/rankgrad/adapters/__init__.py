"""Our losses inside other people's frameworks, a file per framework, and their losses in our trainings."""
