"""One ASGI application: websocket API, authentication, health, lifecycle."""
