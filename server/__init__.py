"""The server: HTTP, WebSockets, accounts, jobs, live sessions and webhooks around the recognition of pipeline/."""

__version__ = "0.2.0"
