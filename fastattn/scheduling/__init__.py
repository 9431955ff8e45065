"""The scheduler: requests of many callers, a fair queue, and slots: workers and the threads that run them."""
