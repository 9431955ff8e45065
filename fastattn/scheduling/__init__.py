"""The scheduler: requests of many callers, a fair queue, and seats: workers with the threads that run them."""
