"""Does a repair do harm when its worker is killed, paused or doubled, and broker, database or AWS fail? See docs/decisions/0029-*."""
