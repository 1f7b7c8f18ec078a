"""Does a cast round, overflow, saturate and flush as its format says? Judged against exact tables, tolerance zero."""
