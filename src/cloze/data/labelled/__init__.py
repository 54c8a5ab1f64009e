"""Labelled data: records for each task, and readers of the files they come in."""
