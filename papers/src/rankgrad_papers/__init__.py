"""What the papers need and a user's product does not: their tables, figures and studies, and SoDeep's sorter."""
