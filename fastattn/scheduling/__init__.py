"""Who computes what, and when: requests of many callers, a fair queue, seats for as many workers as there are threads."""
