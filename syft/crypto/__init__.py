"""What hides numbers from workers that compute with them: streams of masks.

The mathematics alone: nothing here knows a worker or a message.
"""
