"""What documents are generated from. `parts` lists the generated parts; `python -m assay.suites.tables` writes them."""
