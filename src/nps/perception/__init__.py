"""Images to slots (step 1 of the paper's algorithms), and back."""
