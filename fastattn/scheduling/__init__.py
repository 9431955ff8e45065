"""Who computes what, and when: requests of many callers, a fair queue, as many seats as there are threads."""
