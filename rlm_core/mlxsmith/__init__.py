"""Projects of mlxsmith 0.1.0, a loop that this one grew out of: its settings and exams, in the terms of this one."""
