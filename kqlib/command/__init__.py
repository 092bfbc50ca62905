"""The command line `kq`: `main.py` has the short commands; those with sub-commands are modules of their own."""
