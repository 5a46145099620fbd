"""What members publish: one branch each, and what readers see of them."""
