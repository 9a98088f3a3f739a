package idgen_test

// Computed apart from the code, with Python's hashlib.
const (
	goldenHash = "fa7b1bb2753ad326de6146628135e1c5661dd297bfe5af80b0c83534b7fe1332"
	goldenID   = "23489024525192451156371"
)
