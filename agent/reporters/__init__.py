"""How an incident is shown: terminal, Markdown, JSON and one offline HTML file.

Every renderer reads an `IncidentView` and nothing else. Text that a user's script, an advisor or a file name brought in
passes through `text.printable` before it reaches a screen.
"""
