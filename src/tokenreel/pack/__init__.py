"""Rows: policies, masks, positions, segment ids; packing plans."""
