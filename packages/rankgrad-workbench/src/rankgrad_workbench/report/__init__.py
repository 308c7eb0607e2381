"""Self-contained pages about runs of any task. What a task's page shows is read by the task."""
