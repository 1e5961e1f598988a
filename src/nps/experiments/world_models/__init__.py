"""What the experiments on world models share (section 4.3): settings, model, loss and test.

Not an experiment by itself: blocks, Atari and the user's own episodes each add a world.
"""
