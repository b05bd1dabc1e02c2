"""Starting engines and keeping hold of them."""
