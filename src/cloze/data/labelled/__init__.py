"""Labelled data: examples of each task, and readers of their file formats."""
