"""What people and programs read of a run: the terminal, JSON, HTML, and two reports compared."""
