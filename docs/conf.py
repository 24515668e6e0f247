r"""Sphinx: ``sphinx-build -W docs docs/_build``. Pages come from the docstrings."""

from botorch_bkb import __version__ as release

__all__ = ["release"]

project = "botorch-bkb"
copyright = "the authors of botorch-bkb"
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
html_theme = "alabaster"
html_theme_options = {"page_width": "70em", "sidebar_width": "16em"}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
add_module_names = False
napoleon_use_ivar = True
exclude_patterns = ["_build"]
