"""The HTML pages that are files: contact sheets and reports, as Jinja templates."""
