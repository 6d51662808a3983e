"""The websocket API, version 1: message types, their JSON form and its schema.

Imports nothing else of the project, so that clients can take it alone.
"""
