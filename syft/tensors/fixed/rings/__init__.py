"""The integers beneath fixed precision: one interface, whoever may read them."""
