"""The scheduler: requests of many callers, a fair queue, and slots: workers with the threads that run them."""
