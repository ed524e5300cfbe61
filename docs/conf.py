"""How Sphinx builds this site. Everything that a page shows comes from the repository: a build needs no network."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

project = "Lingon"
author = "the Lingon authors"
copyright = author
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "docs.generators.extension"]
exclude_patterns = ["generators"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autoclass_content = "both"  # the options of a client are described in __init__
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other libraries have no pages here; myst checks its links anyway

smartquotes = False  # they turn the -- of options into dashes
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"Lingon {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"footer_icons": []}
