"""Run exported tickets with numpy, pillow and their runtime; torch is never imported."""
