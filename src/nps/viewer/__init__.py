"""The workbench in the browser: a server on the loopback, what it sends, and the frozen page."""
