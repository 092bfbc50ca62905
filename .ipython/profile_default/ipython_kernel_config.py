"""How every kernel of this checkout behaves: in JupyterLab (make lab), when notebooks are made, when they are compared.

All three set IPYTHONDIR to the `.ipython` directory that holds this file, so that a reader sees what the tests saw.
"""

c = get_config()  # noqa: F821  (IPython puts it there)

# Native code (librdkafka, a JVM's child) may write to the file descriptors 1 and 2. JupyterLab would show such lines in
# the notebook; under pytest ipykernel leaves those descriptors alone. The same cell would then have two outputs, so
# neither captures them: clients are made quiet at their source, and what is left goes to the terminal.
c.IPKernelApp.capture_fd_output = False

# No history file: two notebooks at once would share one SQLite file in the checkout, and what a reader types stays out
# of it. `_`, `In`, `Out` and the arrow keys work as ever.
c.HistoryManager.enabled = False

# A kernel's warnings go to the terminal, not to the notebook. The only usual one says that its loopback ports are
# not encrypted: it frightens newcomers and asks nothing of them.
c.IPKernelApp.log_level = "ERROR"
