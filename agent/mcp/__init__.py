"""The incidents of one folder, served to a coding agent (Model Context Protocol): read, propose, rerun."""
