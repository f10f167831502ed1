"""The form that submits work: its fields, what they offer, and the folder that goes along."""
