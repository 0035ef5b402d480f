"""Other people's programs: models and optimizers out of their own packages, tiny, with random weights.

`tox -e libraries` installs the packages that `requirements.txt` pins, and runs every row in both modes. Every row
imports its package when it is made, so that listing the suite needs none of them.
"""
