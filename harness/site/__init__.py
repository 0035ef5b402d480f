"""The site of a night: static pages in one folder, which need no network."""
