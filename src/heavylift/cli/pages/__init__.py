"""Reports as one HTML file each: no script, no font, nothing fetched; plots are drawn as SVG."""
