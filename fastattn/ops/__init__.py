"""The operations that models compute with: their protocol, and a room for each backend."""
