"""What the documents are generated from. `parts` lists the generated parts; `python -m suites.tables` writes them."""
