"""Evidence for a go-live report: gathered from what the stages keep, and from what runs now."""
