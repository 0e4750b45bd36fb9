"""The parts that pages show, each read by a thread of its own (`strandline.web.polling`)."""

__all__ = ()
