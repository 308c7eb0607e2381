"""What every part of the library uses: checks, files, progress, names, plug-ins. Needs no torch."""
