"""Pages of the console for those who administer the platform, a department or a project."""
