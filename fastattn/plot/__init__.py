"""Pictures of attention weights: an SVG, and HTML that a notebook shows. They need no network and no library."""

from fastattn.plot.attention_plot import AttentionPlot, plot_attention

__all__ = ["AttentionPlot", "plot_attention"]
