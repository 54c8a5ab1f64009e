"""Two model families in a package of their own, for the test that cloze can be extended.

Nothing in cloze knows this package: the entry-point group `cloze.families` names its records.
"""
