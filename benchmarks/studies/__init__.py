r"""The studies, one module each. The function ``run`` of a module fills a report."""
