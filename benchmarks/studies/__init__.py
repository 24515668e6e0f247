r"""One module a study: its docstring says what it shows, ``run`` fills a report."""
