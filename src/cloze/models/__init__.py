"""The systems, one file each; none imports another."""
