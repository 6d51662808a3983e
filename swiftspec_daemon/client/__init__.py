"""The public client: `AsyncClient` and `Client`."""
