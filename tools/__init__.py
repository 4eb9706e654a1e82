"""What people type and what the platform imports: the command line and the client."""
