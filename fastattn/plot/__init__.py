"""Pictures of attention weights: an SVG, and an HTML that a notebook shows by itself. No network, no library."""

from fastattn.plot.attention_plot import AttentionPlot, plot_attention

__all__ = ["AttentionPlot", "plot_attention"]
