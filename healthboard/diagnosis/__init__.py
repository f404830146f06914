"""How evidence is read: pure Python, no Django, no clock of its own, no I/O but the shipped catalogue."""
