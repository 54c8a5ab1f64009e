"""The models, one file each; they do not import each other."""
