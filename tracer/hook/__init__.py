"""The start-up hook of traced interpreters: this folder is put on the PYTHONPATH of the ranks.

`sitecustomize` runs in every Python of a rank, under the user's own interpreter, which may know nothing of
vsketchdlc: the modules here use the standard library only and import each other by top-level names.
"""
