"""Live sessions: audio that is still being spoken, heard word by word. One session is one job."""
