"""HTTP, WebSocket, SSE, accounts, jobs, webhooks: everything between the network and the pipeline."""

__version__ = "0.1.0"
