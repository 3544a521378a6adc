"""Live sessions: audio that is recognised while it is spoken. A session is a job."""
