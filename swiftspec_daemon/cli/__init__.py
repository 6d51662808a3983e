"""The `swiftspec` command: one file for each group of commands, put together in `app`.

Modules here may print. They import what they need inside the commands, so that `swiftspec status`
does not wait for what `swiftspec doctor` needs.
"""
