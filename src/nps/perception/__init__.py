"""Step 1: from images to slots, and the decoders back."""
