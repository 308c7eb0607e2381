"""Building blocks of all HTML pages: frame and security policy, colours, text, pictures, charts, strips of items."""
