"""What every page is made with: skeleton and policy, colours, text, pictures, charts, strips of neighbours."""
