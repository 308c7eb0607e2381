"""Code to reproduce the papers: their tables, figures and studies, their data sets, and SoDeep's sorter."""
