"""What came of an iteration and of a project, for people: in the UI, in files, in HTML."""
