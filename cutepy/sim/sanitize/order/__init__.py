"""What orders what: the knowledge of threads and operations, and what synchronisation passes on."""
