"""The pages of the site, one module each; `strandline.web.site` has their addresses."""

__all__ = ()
