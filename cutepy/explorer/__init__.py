"""Explorer: a local web page that draws layouts, operands of Hopper and Blackwell, and simulated runs.

``cutepy explore`` serves it; `cutepy.explorer.app.create_app` is its Flask application. What a page asks is computed in
a process of its own (`worker`), which reads texts of the layout notation and never evaluates Python, and which is
stopped where it takes too long. Importing this package loads none of it, and not Flask.
"""
