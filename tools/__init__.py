"""Scripts that keep the repository; no part of the library."""
