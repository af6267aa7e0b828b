"""The whole operator behind the fault proxy: one test for each fault and rule, on what a user would notice."""
