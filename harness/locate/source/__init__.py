"""A case as text of its own: its functions written out of their modules, and made smaller line by line."""
