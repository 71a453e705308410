"""FNA in third-party libraries; each module is imported only by its users and has an extra of its own."""
